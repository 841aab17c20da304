"""Decoder-only models of transformers as step models: the beam of a prompt is one sequence of its own forward."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, final
from weakref import WeakSet

import numpy as np
import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

from uncurse.arrays import Bools, Ints
from uncurse.errors import UncurseError
from uncurse.models.huggingface.beam_tree import BeamTree
from uncurse.models.huggingface.cache import CacheGroups, concatenated
from uncurse.models.huggingface.log_probs import LogProbsFn, chosen, processed_log_probs
from uncurse.models.huggingface.network import check_positions, check_scale, fingerprint_of, vocab_size_of
from uncurse.search.step_model import Continuations

FULL, SLIDING = "full_attention", "sliding_attention"  # as `layer_types` of a config names them
ALIBI: Final = ("bloom", "mpt")  # types of models that have it without saying so in their config
MASKED: Final = ("eager", "sdpa")  # implementations of attention that take a mask of four dimensions
_proved: WeakSet[PreTrainedModel] = WeakSet()  # models whose attention has been tried


@final
class CausalStepModel:
    """A decoder-only model. Its sources are prompts, which count in no length."""

    def __init__(
        self,
        network: PreTrainedModel,
        eos: Sequence[int],
        log_probs: LogProbsFn | None = None,
        fingerprint: str | None = None,
        embeddings: Sequence[Tensor] | None = None,
        shown: Tensor | None = None,
    ) -> None:
        """Several tokens in `eos` count as one end.

        Where the `embeddings` of prompts are given, each [length, hidden], or what is `shown` of them to logits
        processors, [prompts, length], the prompts join all at once.
        """
        self._network: Any = network.train(mode=False)
        self._windows = attention_windows(network)
        self._log_probs = log_probs or processed_log_probs((), eos)
        self._embeddings, self._shown = embeddings, shown
        self.signature = f"{network.config.model_type}-{fingerprint or fingerprint_of(network, str(list(eos)))}"
        self.vocab_size = vocab_size_of(network)
        self.bos = self.eos = eos[0]  # nothing is fed before a prompt
        self.attends = False
        if network not in _proved:
            _check_tree_attention(self)
            _proved.add(network)

    def start(self, sources: Sequence[Sequence[int]]) -> CacheGroups[BeamTree]:
        """Take in prompts, which are run at the first step."""
        return CacheGroups((BeamTree.starting(sources, self._network.device, self._embeddings, self._shown),))

    @torch.inference_mode()
    def step(
        self, state: CacheGroups[BeamTree], tokens: Ints, k: int, attention: bool
    ) -> tuple[Continuations, CacheGroups[BeamTree]]:
        """Feed each row its token, or its prompt at the first step; return its k best next tokens."""
        return self._advance(state, tokens, k)

    @torch.inference_mode()
    def step_among(
        self, state: CacheGroups[BeamTree], tokens: Ints, candidates: Ints, attention: bool
    ) -> tuple[Continuations, CacheGroups[BeamTree]]:
        """Feed each row its token; return what its candidates have, [rows, k]."""
        return self._advance(state, tokens, candidates)

    def _advance(
        self, state: CacheGroups[BeamTree], tokens: Ints, wanted: int | Ints
    ) -> tuple[Continuations, CacheGroups[BeamTree]]:
        after, found = [], []
        for (tree, of_tree), wanted_of_tree in zip(state.split(tokens), state.split_wanted(wanted), strict=True):
            grown, logits = self.logits(tree, of_tree)
            found.append(chosen(self._log_probs(grown.fed, logits.float()), wanted_of_tree))
            after.append(grown)
        return concatenated(found), CacheGroups(tuple(after))

    def logits(self, tree: BeamTree, tokens: Ints) -> tuple[BeamTree, Tensor]:
        """Run the model once; the logits of each row, [rows, vocab_size]."""
        if not tree.has_begun and tree.to_run is not None:
            return tree, self._run_prompts(tree, tree.to_run)
        tree = tree.compacted()
        position = tree.prompt_lengths + tree.path.shape[1]  # [sentences]
        check_positions(self._network, "decoder", int(position.max()) + 1)
        check_scale(self._network, int(tree.prompt_lengths.min()), int(position.max()) + 1)
        rows, lane = tree.sentence, tree.lane
        device, width = tree.fed.device, int(lane.max()) + 1
        fed = torch.from_numpy(np.ascontiguousarray(tokens)).to(device)
        ids = torch.zeros((len(position), width), dtype=torch.long, device=device)
        ids[rows, lane] = fed
        output = self._network(
            input_ids=ids,
            attention_mask=self._mask(tree),
            position_ids=torch.from_numpy(position).to(device)[:, None].expand(-1, width),
            past_key_values=tree.cache,
            use_cache=True,
        )
        return tree.grown(fed), output.logits[rows, lane]

    def _run_prompts(self, tree: BeamTree, prompts: Tensor) -> Tensor:
        """Fill the cache of each sentence with its prompt: token ids, or embeddings of them."""
        check_positions(self._network, "decoder", int(tree.prompt_lengths.max()))
        check_scale(self._network, int(tree.prompt_lengths.min()), int(tree.prompt_lengths.max()))
        mask = torch.from_numpy(tree.prompt_mask).to(tree.fed.device)
        first = np.searchsorted(tree.sentence, np.arange(len(mask)))  # a row of each sentence
        last_only = {"logits_to_keep": 1} if self._network._supports_logits_to_keep() else {}
        output = self._network(
            **{"inputs_embeds" if prompts.is_floating_point() else "input_ids": prompts[first]},
            attention_mask=mask.long(),
            position_ids=(mask.long().cumsum(dim=1) - 1).clamp(min=0),
            past_key_values=tree.cache,
            use_cache=True,
            **last_only,
        )
        logits: Tensor = output.logits[:, -1][tree.sentence]
        return logits

    def _mask(self, tree: BeamTree) -> Tensor | dict[str, Tensor]:
        """What is added to the attention scores, [sentences, 1, lanes, positions]; by kind if layers differ."""
        masks = {kind: self._additive(tree.visible(window)) for kind, window in self._windows.items()}
        return masks if len(masks) > 1 else next(iter(masks.values()))

    def _additive(self, visible: Bools) -> Tensor:
        dtype, device = self._network.dtype, self._network.device
        hidden = torch.from_numpy(~visible).to(device)[:, None]
        return torch.zeros(hidden.shape, dtype=dtype, device=device).masked_fill(hidden, torch.finfo(dtype).min)


def attention_windows(network: PreTrainedModel) -> dict[str, int | None]:
    """The window of each kind of attention layer, None for full attention; other kinds are refused by name."""
    name = type(network).__name__
    layers = DynamicCache(config=network.config).layers
    kinds = {type(layer) for layer in layers}
    if network._is_stateful or not kinds <= {DynamicLayer, DynamicSlidingWindowLayer}:
        raise UncurseError(f"{name} keeps a state that is no KV cache, and beam search cannot reorder it")
    config = network.config.get_text_config(decoder=True)
    types = set(getattr(config, "layer_types", None) or ())
    if not types <= {FULL, SLIDING}:
        raise UncurseError(
            f"{name} has layers of the kind {min(types - {FULL, SLIDING})}, which are not supported"
        )
    if config.model_type in ALIBI or getattr(config, "alibi", False):
        raise UncurseError(
            f"{name} biases attention by the order of its KV cache (ALiBi), which no tree of prefixes fits"
        )
    for place, buffer in network.named_buffers():
        if buffer.ndim == 4 and buffer.shape[2] == buffer.shape[3] > 1:  # GPT-Neo, whose windows are only there
            raise UncurseError(f"{name} has attention masks of its own, {place}, which no tree of prefixes fits")
    if (implementation := network.config._attn_implementation) not in MASKED:
        raise UncurseError(
            f"attn_implementation = {implementation!r} is not supported: load {name} with"
            f" attn_implementation={' or '.join(map(repr, MASKED))}"
        )
    sliding = {layer.sliding_window for layer in layers if isinstance(layer, DynamicSlidingWindowLayer)}
    if len(sliding) > 1:
        raise UncurseError(f"{name} has windows of different sizes, {sorted(sliding)}, which are not supported")
    windows: dict[str, int | None] = {FULL: None} if DynamicLayer in kinds else {}
    if sliding:
        windows[SLIDING] = min(sliding)
    return windows


@torch.inference_mode()
def _check_tree_attention(model: CausalStepModel) -> None:
    """Raise an `UncurseError` unless two branches of a tree have the logits of separate runs of the model.

    Some models make positions or masks of their own from the order of the cache.
    """
    network, name = model._network, type(model._network).__name__
    prompts, branches = ([1, 2, 3], [2, 1]), np.array([[3, 1, 2], [1, 2, 3]])  # [step, row]
    try:
        tree = BeamTree.starting(prompts, network.device)
        tree, _ = model.logits(tree, np.empty(0, dtype=np.int64))
        tree = tree.select(np.array([0, 0, 1]))
        for tokens in branches:
            tree, found = model.logits(tree, tokens)
        for row, sentence in enumerate((0, 0, 1)):
            whole = torch.tensor([[*prompts[sentence], *branches[:, row].tolist()]], device=network.device)
            positions = torch.arange(whole.shape[1], device=network.device)[None]
            expected = network(input_ids=whole, position_ids=positions, use_cache=False).logits[0, -1].float()
            if not bool(expected.isfinite().all()):
                raise UncurseError("its logits are not finite")
            difference = (found[row].float() - expected).norm() / expected.norm()
            if not difference < (1e-3 if network.dtype == torch.float32 else 0.1):
                raise UncurseError(f"its logits differ by {float(difference):.2g}")
    except Exception as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise UncurseError(f"{name} cannot run a beam as one sequence: {reason}") from error
