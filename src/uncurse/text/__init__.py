"""From lines to pieces and back."""
