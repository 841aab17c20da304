"""What runs jobs: this process, or the workers of a Ray cluster."""
