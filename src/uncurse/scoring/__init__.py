"""Scores, stopping rules and what they prove."""
