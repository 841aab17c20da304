"""A service that translates over HTTP, and a page that makes its searches visible."""
