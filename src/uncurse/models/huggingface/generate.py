"""Beam search as a decoding method of `model.generate` in transformers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import (
    GenerationConfig,
    LogitsProcessorList,
    PreTrainedModel,
    StoppingCriteriaList,
)
from transformers.utils.generic import ModelOutput

from uncurse.constraints.constraint import Constraint
from uncurse.errors import UncurseError
from uncurse.lengths.predictors import LengthPredictor
from uncurse.models.huggingface.causal import attention_windows
from uncurse.models.huggingface.generate_call import GenerateCall, frame_of_generate
from uncurse.models.huggingface.generate_causal import CausalTask, causal_task
from uncurse.models.huggingface.generate_checks import check_supported
from uncurse.models.huggingface.generate_constraints import Constraints, constraints_apart
from uncurse.models.huggingface.generate_encoder_decoder import EncoderDecoderTask, encoder_decoder_task
from uncurse.models.huggingface.generate_inputs import check_sources, eos_tokens
from uncurse.models.huggingface.generate_lengths import ExpectedLength, LengthOptions
from uncurse.models.huggingface.log_probs import processed_log_probs
from uncurse.scoring.decoding import Decoding, Slots, checked_count
from uncurse.scoring.rescorer import Rescorer
from uncurse.scoring.result import Result
from uncurse.scoring.stopping import StoppingRule
from uncurse.search.step_model import ModelError


@final
class CertificateName(str):
    """The name of a `Certificate`; the `generate` of Whisper calls `cpu` on everything that it is given."""

    __slots__ = ()

    def cpu(self) -> CertificateName:
        """Where it is."""
        return self


@final
@dataclass
class BeamSearchOutput(ModelOutput):
    """What `generate` returns with `return_dict_in_generate=True`.

    Where fewer than `num_return_sequences` hypotheses ended within the maximum length, the rows left over hold the
    prompt and padding, with a score of -inf; `num_hypotheses` counts the others.
    """

    sequences: Tensor  # [batch · num_return_sequences, length] prompts with their hypotheses, the best first
    sequences_scores: Tensor | None = None  # [batch · num_return_sequences]
    num_hypotheses: Tensor | None = None  # [batch] at most num_return_sequences
    certificates: tuple[str, ...] | None = None  # [batch] names of `Certificate`
    gaps: Tensor | None = None  # [batch] by how much a continuation could have beaten the last of the list
    steps: Tensor | None = None  # [batch]
    token_log_probs: Tensor | None = None  # [batch · num_return_sequences, longest] of the new tokens, then 0


def beam_search(
    model: PreTrainedModel,
    input_ids: Tensor,
    *,
    logits_processor: LogitsProcessorList,
    stopping_criteria: StoppingCriteriaList,
    generation_config: GenerationConfig,
    inputs_tensor: Tensor,
    beam_size: int | None = None,
    score: Rescorer | str | None = None,
    stop: StoppingRule | str = "optimal",
    slots: Slots | str = "occupy",
    length_ratio: float | None = None,
    length_predictor: LengthPredictor | None = None,
    expected_length: ExpectedLength | None = None,
    num_return_sequences: int | None = None,
    constraint: Constraint | None = None,
    **model_kwargs: Any,  # noqa: ANN401  (what the forwards of models take)
) -> Tensor | BeamSearchOutput:
    """Beam search for `generate`: `model.generate(**inputs, custom_generate=beam_search, beam_size=20)`.

    Everything but the search is unchanged: sources are encoded, logits processors act, and sequences come back in
    the same layout. Of the options of the search that come with the model, `num_beams` and `length_penalty` are
    defaults for those below, and `do_sample`, `early_stopping`, … are ignored; in the call they are an error.

    A `max_new_tokens` or `max_length` of the call is the maximum length. Without one, an encoder-decoder has the
    0.8 quantile of the length where `length_predictor` knows it, else twice the source tokens plus 10; a sentence
    for which nothing but the empty output ends within the quantile is searched again with the latter. The maximum
    length that comes with the model is never exceeded; a decoder-only model has no other. Lengths do not count
    prompts.

    Args:
        beam_size: The number of hypotheses in the beam. By default the `num_beams` that comes with the model, if
            that is more than 1, else 20.
        score: What finished hypotheses are ranked by: a name such as "length-norm" or "gnmt:alpha=0.2,beta=0.2"
            (`uncurse methods` lists them), or a `Rescorer`. By default F1-Norm if a length is expected, else
            length norm, with the `length_penalty` that comes with the model.
        stop: When the search for a sentence ends: a name such as "beam-full", or a `StoppingRule`. By default as
            soon as no continuation could enter the list of the `num_return_sequences` best.
        slots: Whether a hypothesis that ends takes a place in the beam at that step ("occupy"), or all places are
            filled with others ("refill", as in the beam search of transformers).
        length_ratio: How many target tokens to expect per source token (encoder-decoders only).
        length_predictor: Predicts lengths from the encoder's states; it must have been fitted to this model
            (encoder-decoders only).
        expected_length: How many tokens to expect, `</s>` included: one number for all sentences, one for each, or
            a function from the tokens of a source or prompt to a number.
        num_return_sequences: How many hypotheses are returned for each sentence, at most `beam_size`. Where fewer
            end within the maximum length, the rows left over hold the prompt and padding, with a score of -inf.
        constraint: Which outputs are allowed, prompts not counted: a `Trie`, say. A `prefix_allowed_tokens_fn` of
            the call is a constraint, too, and sees prompts.
        model: Passed by `generate`, as are all that follow.
        input_ids: The prompts of the decoder, [batch, length].
        logits_processor: Applied to log-probabilities, as in the beam search of transformers.
        stopping_criteria: Maximum length and `</s>`; others are an error.
        generation_config: The options of the call and of the model.
        inputs_tensor: The source tokens of an encoder-decoder, [batch, positions], or what is encoded instead,
            such as the features of speech; else the prompts.
        **model_kwargs: What the encoder returned, and the attention mask.

    Returns:
        The sequences, [batch · num_return_sequences, length], or with `return_dict_in_generate=True` a
        `BeamSearchOutput`, which also has scores and certificates.

    Raises:
        UncurseError: An option cannot act, or the model or a logits processor gave a log-probability above 0.
    """
    call = GenerateCall(model, generation_config, stopping_criteria, frame_of_generate())
    default = generation_config.num_return_sequences or 1
    n_best = checked_count(
        "num_return_sequences", default if num_return_sequences is None else num_return_sequences
    )
    lengths = LengthOptions(length_ratio, length_predictor, expected_length)
    if score is None and not lengths.known:
        score = call.default_score
    decoding = Decoding(
        beam_size=call.default_beam_size if beam_size is None else beam_size,
        score=score,
        stop=stop,
        n_best=n_best,
        slots=slots,
    ).with_score(knows_length=lengths.known)
    constraining, processors = constraints_apart(call.acting(logits_processor))
    constraints = Constraints(constraint, constraining)
    if not model.config.is_encoder_decoder:
        attention_windows(model)  # refuses models that it cannot run
    check_supported(call, processors, decoding, lengths, inputs_tensor, model_kwargs)
    lengths.check_read(decoding, default_limit=call.max_length is None)
    check_sources(inputs_tensor)
    ends = eos_tokens(model, generation_config)
    log_probs = processed_log_probs(processors, ends)
    task: EncoderDecoderTask | CausalTask
    if model.config.is_encoder_decoder:
        task = encoder_decoder_task(call, input_ids, inputs_tensor, lengths, log_probs, constraints, model_kwargs)
    else:
        task = causal_task(call, input_ids, expected_length, log_probs, constraints, model_kwargs)
    try:
        results = task.search(decoding)
    except ModelError as error:
        names = ", ".join(type(each).__name__ for each in processors) or "none"
        raise UncurseError(f"{error}; logits processors at work: {names}") from error
    padding = ends[0] if generation_config.pad_token_id is None else generation_config.pad_token_id
    output = _output(results, task.prompts, n_best, padding)
    return output if generation_config.return_dict_in_generate else output.sequences


def _output(results: list[Result], prompts: Tensor, n_best: int, padding: int) -> BeamSearchOutput:
    """The hypotheses of the sentences one below the other, with rows of the prompt alone where one is missing."""
    rows, scores, log_probs = [], [], []
    for prompt, result in zip(prompts.tolist(), results, strict=True):
        missing = n_best - len(result.hypotheses)
        rows += [prompt + list(each.tokens) for each in result.hypotheses] + [prompt] * missing
        scores += [each.score for each in result.hypotheses] + [-torch.inf] * missing
        log_probs += [each.log_probs for each in result.hypotheses] + [()] * missing
    sequences = pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=padding)
    of_tokens = pad_sequence([torch.tensor(row, dtype=torch.float32) for row in log_probs], batch_first=True)
    return BeamSearchOutput(
        sequences=sequences.to(prompts.device),
        sequences_scores=torch.tensor(scores, device=prompts.device),
        num_hypotheses=torch.tensor([len(result.hypotheses) for result in results], device=prompts.device),
        certificates=tuple(CertificateName(result.certificate.name) for result in results),
        gaps=torch.tensor([result.gap for result in results], device=prompts.device),
        steps=torch.tensor([result.steps for result in results], device=prompts.device),
        token_log_probs=of_tokens.to(prompts.device),
    )
