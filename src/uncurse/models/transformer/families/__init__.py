"""One file per family of models: its architecture, and the names and settings of Hugging Face."""
