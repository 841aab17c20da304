"""What the pages of this package share: their look, their drawing, and the rules that keep them safe."""
