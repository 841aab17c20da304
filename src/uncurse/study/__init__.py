"""A study of one model: one decode for each beam size; every score, rule, table and figure from its traces."""
