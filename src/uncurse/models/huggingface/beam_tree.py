"""A KV cache in which the whole beam of a sentence is one sequence: the prompt, then the nodes of a prefix tree.

The cache is an ordinary `DynamicCache` with one row for each sentence. Every live prefix (a lane) adds a node at
each step. All nodes of a step have the same position, and a four-dimensional attention mask lets each lane see the
prompt and its own path alone. So the prompt is stored once, and no cache is ever reordered.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Self, final

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from uncurse.arrays import Bools, Ints
from uncurse.errors import UncurseError
from uncurse.models.huggingface.cache import selected_cache

SPARE_NODES: Final = 64  # dead nodes are cleared away when they outnumber the live ones by so many


@final
@dataclass(frozen=True, eq=False)
class BeamTree:
    """Sentences that joined together, with the prefixes of their outputs."""

    prompt_mask: Bools  # [sentences, prompt] which columns hold tokens; prompts are padded on the left
    sentence: Ints  # [rows] which sentence a row belongs to, rising
    path: Ints  # [rows, step] the nodes of each prefix, counted from the end of the prompt
    fed: Tensor  # [rows, shown + step] what logits processors see: of the prompt, then the tokens so far
    cache: DynamicCache  # [sentences, heads, prompt + nodes, head size] in each layer; empty before the first step
    to_run: Tensor | None  # [rows, prompt] ids, or embedded, [rows, prompt, hidden]; None once they have run

    @staticmethod
    def starting(
        prompts: Sequence[Sequence[int]],
        device: torch.device,
        embeddings: Sequence[Tensor] | None = None,
        shown: Tensor | None = None,
    ) -> BeamTree:
        """One row for each prompt; with embeddings, each [length, hidden], its tokens do not matter.

        Shorter prompts are filled up with token 0, which every model has and no prefix sees.
        Logits processors see the padded prompts, unless it is said what they see, [prompts, shown].
        """
        if not all(prompts):
            raise UncurseError("a prompt is empty: a decoder needs a token to start from")
        longest = max(map(len, prompts))
        ids = torch.tensor([[0] * (longest - len(each)) + list(each) for each in prompts], device=device)
        mask = np.array([[column >= longest - len(each) for column in range(longest)] for each in prompts])
        to_run = ids
        if embeddings is not None:
            to_run = pad_sequence(list(embeddings), batch_first=True, padding_side="left")
        return BeamTree(
            prompt_mask=mask,
            sentence=np.arange(len(prompts)),
            path=np.empty((len(prompts), 0), dtype=np.int64),
            fed=ids if shown is None else shown,
            cache=DynamicCache(),
            to_run=to_run,
        )

    def __len__(self) -> int:
        return len(self.sentence)

    @property
    def has_begun(self) -> bool:
        """Whether the prompts have been run."""
        return self.cache.get_seq_length() > 0

    @property
    def nodes(self) -> int:
        """The number of nodes of each sentence, dead ones counted."""
        return self.cache.get_seq_length() - self.prompt_mask.shape[1] if self.has_begun else 0

    @property
    def lane(self) -> Ints:
        """The place of each row among those of its sentence, [rows]."""
        first = np.searchsorted(self.sentence, self.sentence)
        return np.arange(len(self.sentence)) - first

    @property
    def prompt_lengths(self) -> Ints:
        """The number of tokens of each prompt, [sentences]."""
        lengths: Ints = self.prompt_mask.sum(axis=1)
        return lengths

    def select(self, rows: Ints) -> Self:
        """The given rows; sentences without any leave the cache."""
        chosen = torch.from_numpy(np.ascontiguousarray(rows)).to(self.fed.device)
        staying, sentence = np.unique(self.sentence[rows], return_inverse=True)
        if (np.diff(sentence) < 0).any():
            raise UncurseError("rows cannot be selected: sentences must stay in the order in which they joined")
        some = len(staying) < len(self.prompt_mask)
        kept = torch.from_numpy(staying).to(self.fed.device) if some else None
        return type(self)(
            prompt_mask=self.prompt_mask[staying],
            sentence=sentence,
            path=self.path[rows],
            fed=self.fed[chosen],
            cache=selected_cache(self.cache, kept),
            to_run=None if self.has_begun or self.to_run is None else self.to_run[chosen],
        )

    def grown(self, tokens: Tensor) -> BeamTree:
        """The rows with one token more, [rows], after a forward has added a node for each lane."""
        width = int(self.lane.max()) + 1
        node = self.nodes - width + self.lane
        return replace(
            self,
            path=np.concatenate((self.path, node[:, None]), axis=1),
            fed=torch.cat((self.fed, tokens[:, None]), dim=1),
        )

    def visible(self, window: int | None = None) -> Bools:
        """What each lane may attend to at the next step, [sentences, lanes, prompt + nodes + lanes].

        With sliding-window attention it is no more than `window` positions, its own counted. A lane without a row
        sees itself, so that its attention is defined.
        """
        lane, step = self.lane, self.path.shape[1]
        width, before = int(lane.max()) + 1, self.prompt_mask.shape[1]
        seen = np.zeros((len(self.prompt_mask), width, before + self.nodes + width), dtype=bool)
        in_prompt, recent = self.prompt_mask, self.path
        if window is not None:
            position = np.cumsum(self.prompt_mask, axis=1) - 1
            in_prompt = in_prompt & (position > (self.prompt_lengths + step - window)[:, None])
            recent = self.path[:, max(step - window + 1, 0) :]
        seen[:, :, :before] = in_prompt[:, None]
        seen[self.sentence[:, None], lane[:, None], before + recent] = True
        lanes = np.arange(width)
        seen[:, lanes, before + self.nodes + lanes] = True
        return seen

    def compacted(self, spare: int = SPARE_NODES) -> BeamTree:
        """The same without the nodes that no live prefix goes through, if they are many."""
        live = np.zeros((len(self.prompt_mask), self.nodes), dtype=bool)
        live[self.sentence[:, None], self.path] = True
        most = int(live.sum(axis=1).max(initial=0))
        if self.nodes - most < most + spare:
            return self
        before = self.prompt_mask.shape[1]
        columns = np.argsort(~live, axis=1, kind="stable")[:, :most] + before  # the live ones first, in order
        prompt = np.broadcast_to(np.arange(before), (len(live), before))
        kept = torch.from_numpy(np.concatenate((prompt, columns), axis=1)).to(self.fed.device)
        cache = selected_cache(self.cache, None)
        for layer in cache.layers:
            if isinstance(layer, DynamicLayer) and layer.keys is not None and layer.values is not None:
                layer.keys, layer.values = _columns(layer.keys, kept), _columns(layer.values, kept)
        renumbered = (np.cumsum(live, axis=1) - 1)[self.sentence[:, None], self.path]
        return replace(self, path=renumbered, cache=cache)


def _columns(states: Tensor, columns: Tensor) -> Tensor:
    """Some positions of keys or values, [sentences, heads, positions, size]."""
    index = columns[:, None, :, None].expand(-1, states.shape[1], -1, states.shape[3])
    return states.gather(2, index)
