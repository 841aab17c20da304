"""The phrase-based system beside a study."""
