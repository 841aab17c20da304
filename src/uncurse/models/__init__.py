"""Model families, one file each, imported only when one is loaded."""
