"""Beam search: live, recorded and judged."""
