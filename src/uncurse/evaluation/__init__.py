"""Measuring translations."""
