"""Lines in, translations out."""
