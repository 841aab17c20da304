"""A Transformer runtime for Marian models: float or int8, with a KV cache made for wide beams."""
