"""Expected lengths and maximum lengths."""
