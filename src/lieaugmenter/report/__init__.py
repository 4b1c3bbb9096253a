"""Showing what was found: pictures, and one self-contained page."""
