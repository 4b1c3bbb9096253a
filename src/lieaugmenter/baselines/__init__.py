"""Methods to compare with, one a file."""
