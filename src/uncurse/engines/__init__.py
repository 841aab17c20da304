"""Who does the work: this process, or the workers of a Ray cluster."""
