"""What outputs may be: lists of outputs, regular expressions, banned phrases, no repeated n-grams."""
