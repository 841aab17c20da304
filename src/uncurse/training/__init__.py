"""Training translators, and fitting length predictors to them."""
