"""Beam search inside `model.generate(..., custom_generate=beam_search)` of Hugging Face's transformers."""

from uncurse.errors import needs_extra

with needs_extra("huggingface"):
    from uncurse.models.huggingface.generate import BeamSearchOutput, beam_search
    from uncurse.models.huggingface.tokenizer import token_texts

__all__ = ["BeamSearchOutput", "beam_search", "token_texts"]
