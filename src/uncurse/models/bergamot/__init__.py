"""The models of Firefox (Bergamot): a Transformer encoder and an SSRU decoder, in Marian's binary format."""
