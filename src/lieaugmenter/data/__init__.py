"""Data sets that carry their true symmetry, and readers of a user's own files."""
