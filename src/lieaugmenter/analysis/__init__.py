"""What was found: comparisons with known bases, equivariance errors, the verdict."""
