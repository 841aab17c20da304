"""A beam of 512 among 100,000 allowed outputs, as in generative retrieval: `python benchmarks/wide_beams.py`.

The model is a random Llama. Shown are the certificate of the 512 best, the time outside the model, memory after
the first and the last search, and the time of the beam search of transformers with `prefix_allowed_tokens_fn`.
"""

from __future__ import annotations

import resource
import statistics
import time
from collections import defaultdict
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from transformers import AutoModelForCausalLM, LlamaConfig

from uncurse import Decoding, Sentence, Trie, beam_search
from uncurse.arrays import Ints
from uncurse.models.huggingface.causal import CausalStepModel

BEAM_SIZE, OUTPUTS, LENGTH, CODES, PROMPT, REPEATS = 512, 100_000, 4, 256, 64, 5
FIRST, EOS = 4, 2  # the first code; each of the 4 places has codes of its own
SPENT = [0.0]  # CPU seconds inside the model


class TimedModel:
    """A step model whose work is timed."""

    def __init__(self, inner: CausalStepModel) -> None:
        self._inner = inner
        self.bos, self.eos, self.vocab_size = inner.bos, inner.eos, inner.vocab_size
        self.signature, self.attends = inner.signature, inner.attends

    def start(self, sources: Any) -> Any:  # noqa: ANN401
        """The state of prompts."""
        return self._inner.start(sources)

    def step(self, state: Any, tokens: Ints, k: int, attention: bool) -> Any:  # noqa: ANN401
        """A step among all tokens."""
        return self._timed(self._inner.step, state, tokens, k, attention)

    def step_among(self, state: Any, tokens: Ints, candidates: Ints, attention: bool) -> Any:  # noqa: ANN401
        """A step among candidates."""
        return self._timed(self._inner.step_among, state, tokens, candidates, attention)

    def _timed(self, act: Any, *given: Any) -> Any:  # noqa: ANN401
        began = time.process_time()
        result = act(*given)
        SPENT[0] += time.process_time() - began
        return result


def network() -> Any:  # noqa: ANN401
    """A random model of some size."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=FIRST + LENGTH * CODES, hidden_size=512, intermediate_size=1024, num_hidden_layers=6,
        num_attention_heads=8, num_key_value_heads=8, max_position_embeddings=512, initializer_range=0.05,
        bos_token_id=1, eos_token_id=EOS, pad_token_id=0,
    )  # fmt: skip
    auto_class: Any = AutoModelForCausalLM
    return auto_class.from_config(config).eval()


def outputs() -> list[tuple[int, ...]]:
    """Different outputs, each with a code for each place."""
    random = np.random.default_rng(0)
    codes = np.unique(random.integers(0, CODES, (OUTPUTS + OUTPUTS // 100, LENGTH)), axis=0)
    chosen = random.permutation(codes)[:OUTPUTS]
    return [tuple(row) for row in (chosen + FIRST + CODES * np.arange(LENGTH)).tolist()]


def main() -> None:
    """Search with both and print a table."""
    model, allowed = network(), outputs()
    prompt = torch.randint(FIRST, FIRST + CODES, (1, PROMPT))
    began = time.process_time()
    trie = Trie(allowed, EOS)
    trie.shortest(())
    building = time.process_time() - began
    sentence = Sentence(tuple(prompt[0].tolist()), LENGTH + 1, constraint=trie)
    timed, ours, shares, memory = TimedModel(CausalStepModel(model, [EOS])), [], [], []
    for _ in range(REPEATS):
        SPENT[0], began = 0.0, time.process_time()
        (result,) = beam_search(timed, [sentence], Decoding(BEAM_SIZE, "log-prob", n_best=BEAM_SIZE))
        ours.append(time.process_time() - began)
        shares.append(1 - SPENT[0] / ours[-1])
        memory.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    found = {each.tokens[:-1] for each in result.hypotheses}
    assert len(found) == BEAM_SIZE
    assert found <= set(allowed)
    theirs = _theirs(model, prompt, allowed)
    table = Table(title=f"beam size {BEAM_SIZE}, {OUTPUTS} allowed outputs of {LENGTH} tokens, {REPEATS} searches")
    table.add_column("what")
    table.add_column("", justify="right")
    table.add_row("building the trie, CPU seconds, once", f"{building:.2f}")
    table.add_row("a search, CPU seconds", f"{statistics.median(ours):.2f}")
    table.add_row("outside the model", f"{statistics.median(shares):.0%}")
    table.add_row(f"certificate of the {len(found)} best", result.certificate.name)
    table.add_row("peak MB after the first and the last search", f"{memory[0]:.0f}, {memory[-1]:.0f}")
    table.add_row("transformers with prefix_allowed_tokens_fn, CPU seconds", f"{theirs:.2f}")
    table.add_row("ratio", f"{theirs / statistics.median(ours):.1f}")
    Console().print(table)


def _theirs(model: Any, prompt: torch.Tensor, allowed: list[tuple[int, ...]]) -> float:  # noqa: ANN401
    following: dict[tuple[int, ...], set[int]] = defaultdict(set)
    for output in allowed:
        for place, token in enumerate((*output, EOS)):
            following[output[:place]].add(token)
    lists = {prefix: sorted(tokens) for prefix, tokens in following.items()}

    def allowed_after(_: int, tokens: torch.Tensor) -> list[int]:
        return lists.get(tuple(tokens[PROMPT:].tolist()), [EOS])

    began = time.process_time()
    model.generate(
        prompt, num_beams=BEAM_SIZE, num_return_sequences=BEAM_SIZE, max_new_tokens=LENGTH + 1, do_sample=False,
        length_penalty=0.0, early_stopping="never", prefix_allowed_tokens_fn=allowed_after,
    )  # fmt: skip
    return time.process_time() - began


if __name__ == "__main__":
    main()
