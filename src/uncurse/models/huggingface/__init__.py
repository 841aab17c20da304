"""Models run by transformers."""
