"""The weights of a Bergamot model by name; another architecture, or weights that do not fit, are refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, final

import torch
from torch import Tensor

from uncurse.errors import UncurseError
from uncurse.models.bergamot.marian_file import MarianFile
from uncurse.models.transformer.layers import ACTIVATIONS
from uncurse.models.transformer.quantization import Weight

EMBEDDINGS: Final = "Wemb"
OUTPUT_BIAS: Final = "decoder_ff_logit_out_b"
SETTINGS: Final[Mapping[str, tuple[str, ...]]] = {  # what is implemented; a model with other values is refused
    "type": ("transformer",),
    "transformer-decoder-autoreg": ("rnn",),
    "dec-cell": ("ssru",),
    "transformer-preprocess": ("",),
    "transformer-postprocess": ("dan",),  # dropout, residual connection, layer normalisation
    "transformer-postprocess-emb": ("", "d"),
    "transformer-postprocess-top": ("",),
    "transformer-train-position-embeddings": ("false",),
    "transformer-ffn-depth": ("2",),
    "tied-embeddings-all": ("true",),
    "right-left": ("false",),
    "ulr": ("false",),
}
MAX_LAYERS: Final = 100


@final
@dataclass(frozen=True, eq=False)
class BergamotWeights:
    """Weights by Marian's names, `encoder_l1_self_Wq`, and what their shapes do not tell."""

    matrices: Mapping[str, Weight]
    vectors: Mapping[str, Tensor]
    encoder_layers: int
    decoder_layers: int
    heads: int
    activation: str
    eos: int  # `</s>`, which also ends every source

    @property
    def d_model(self) -> int:
        """The size of the states."""
        return self.matrices[EMBEDDINGS].values.shape[1]

    @property
    def vocab_size(self) -> int:
        """The number of tokens."""
        return len(self.matrices[EMBEDDINGS].values)

    def __post_init__(self) -> None:
        """Refuse weights that are missing, unknown, of the wrong shape, or not finite."""
        if EMBEDDINGS not in self.matrices:
            raise UncurseError(f"{EMBEDDINGS!r} is missing")
        if self.heads < 1 or self.d_model % self.heads or self.d_model % 2:
            raise UncurseError(f"a model of size {self.d_model} cannot have {self.heads} attention heads")
        if not 0 <= self.eos < self.vocab_size:
            raise UncurseError(f"</s> is token {self.eos}, outside the vocabulary of {self.vocab_size} tokens")
        matrices = {EMBEDDINGS: (self.vocab_size, self.d_model), **dict(self._matrix_shapes())}
        vectors = {OUTPUT_BIAS: self.vocab_size, **dict(self._vector_sizes())}
        for name in (*self.matrices, *self.vectors):
            if name not in matrices and name not in vectors:
                raise UncurseError(f"it has {name!r}, which a Bergamot model does not have")
        for name, shape in matrices.items():
            self._check_matrix(name, shape)
        for name, size in vectors.items():
            self._check_vector(name, size)

    def _sublayers(self) -> Iterator[tuple[str, str]]:
        """The kind and the name of every sublayer."""
        for index in range(self.encoder_layers):
            yield from ((kind, f"encoder_l{index + 1}_{kind}") for kind in ("self", "ffn"))
        for index in range(self.decoder_layers):
            yield from ((kind, f"decoder_l{index + 1}_{kind}") for kind in ("rnn", "context", "ffn"))

    def _matrix_shapes(self) -> Iterator[tuple[str, tuple[int, int]]]:
        """The numbers of outputs and inputs."""
        size = self.d_model
        for kind, name in self._sublayers():
            if kind == "ffn":
                inner = self._inner_size(name)
                yield from ((f"{name}_W1", (inner, size)), (f"{name}_W2", (size, inner)))
            else:
                parts = ("W", "Wf") if kind == "rnn" else ("Wq", "Wk", "Wv", "Wo")
                yield from ((f"{name}_{part}", (size, size)) for part in parts)

    def _vector_sizes(self) -> Iterator[tuple[str, int]]:
        size = self.d_model
        for kind, name in self._sublayers():
            if kind == "ffn":
                yield from ((f"{name}_b1", self._inner_size(name)), (f"{name}_b2", size))
            else:
                parts = ("bf",) if kind == "rnn" else ("bq", "bk", "bv", "bo")
                yield from ((f"{name}_{part}", size) for part in parts)
            yield from ((f"{norm_name(name)}_{part}", size) for part in ("scale", "bias"))

    def _inner_size(self, name: str) -> int:
        """The size of the inner layer of a feed-forward sublayer."""
        inner = self.matrices.get(f"{name}_W1")
        if inner is None:
            raise UncurseError(f"'{name}_W1' is missing")
        return len(inner.values)

    def _check_matrix(self, name: str, shape: tuple[int, int]) -> None:
        weight = self.matrices.get(name)
        if weight is None:
            raise UncurseError(f"{name!r} is missing")
        if tuple(weight.values.shape) != shape:
            raise UncurseError(f"{name!r} has {tuple(weight.values.shape)} outputs and inputs; expected {shape}")
        if weight.scale is not None and not bool(((weight.scale > 0) & weight.scale.isfinite()).all()):
            raise UncurseError(f"{name!r} has a scale that is not a number above 0")

    def _check_vector(self, name: str, size: int) -> None:
        vector = self.vectors.get(name)
        if vector is None:
            raise UncurseError(f"{name!r} is missing")
        if len(vector) != size:
            raise UncurseError(f"{name!r} has {len(vector)} values; expected {size}")
        if not bool(torch.isfinite(vector).all()):
            raise UncurseError(f"{name!r} has a value that is not finite")


def norm_name(sublayer: str) -> str:
    """The name of the layer normalisation that ends a sublayer."""
    return f"{sublayer}_{'ffn' if sublayer.endswith(('_ffn', '_rnn')) else 'Wo'}_ln"


def bergamot_weights(file: MarianFile, eos: int) -> BergamotWeights:
    """The weights of a Bergamot model; an error names what another architecture has or does otherwise."""
    for name, supported in SETTINGS.items():
        if (found := file.config.get(name)) not in supported:
            raise UncurseError(f"it is not a Bergamot model: {name} is {found!r}, not {supported[0]!r}")
    activation = file.config.get("transformer-ffn-activation", "")
    if activation not in ACTIVATIONS:
        raise UncurseError(f"it is not a Bergamot model: its activation function is {activation!r}")
    return BergamotWeights(
        matrices=file.matrices,
        vectors=file.vectors,
        encoder_layers=_count(file, "enc-depth"),
        decoder_layers=_count(file, "dec-depth"),
        heads=_count(file, "transformer-heads"),
        activation=activation,
        eos=eos,
    )


def _count(file: MarianFile, name: str) -> int:
    value = file.config.get(name, "")
    if not (value.isascii() and value.isdigit() and len(value) < 4 and 1 <= int(value) <= MAX_LAYERS):
        raise UncurseError(f"{name} is {value!r}; expected a number from 1 to {MAX_LAYERS}")
    return int(value)
