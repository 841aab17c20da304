"""Training translators and length predictors."""
