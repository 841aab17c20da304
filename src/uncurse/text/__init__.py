"""Text: corpora, parallel files, and tokenizers that turn lines into tokens and back."""
