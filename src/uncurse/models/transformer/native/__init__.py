"""The Marian Transformer in C++ for CPUs: a whole step of the decoder in one call."""
