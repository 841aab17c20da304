"""The unrolled layers have the outputs and the gradients of the network that goes step by step."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from uncurse.models.lstm.network import AttentionalLSTM, LSTMShape
from uncurse.training.teacher_forcing import attention_outputs
from uncurse.training.unrolled_lstm import dropout_mask

LENGTHS = torch.tensor([7, 3, 1, 0, 6])  # source tokens; an empty source too
SENTENCES, POSITIONS, STEPS = len(LENGTHS), 7, 9


def network_of(dropout: float, tied: bool, input_feed: bool = True) -> AttentionalLSTM:
    torch.manual_seed(1)
    return AttentionalLSTM(
        LSTMShape(
            source_vocab_size=50,
            target_vocab_size=40,
            embedding=12,
            hidden=16,
            dropout=dropout,
            input_feed=input_feed,
            tied=tied,
        )
    )


def loss_and_gradients(network: AttentionalLSTM, logits: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    target = torch.randint(0, 40, (SENTENCES * STEPS,), generator=torch.Generator().manual_seed(3))
    loss = cross_entropy(logits.float().flatten(0, 1), target)
    network.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    gradients = {name: parameter.grad.clone() for name, parameter in network.named_parameters()}  # type: ignore[union-attr]
    return loss.detach(), gradients


def inputs() -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(2)
    source = torch.randint(3, 50, (SENTENCES, POSITIONS), generator=generator)
    return source, LENGTHS, torch.randint(3, 40, (SENTENCES, STEPS), generator=generator)


@pytest.mark.parametrize("input_feed", [False, True])
@pytest.mark.parametrize("tied", [False, True])
def test_its_gradients_are_those_of_the_network_to_rounding(tied: bool, input_feed: bool) -> None:
    network = network_of(dropout=0.0, tied=tied, input_feed=input_feed)
    expected, gradients = loss_and_gradients(network, network(*inputs()))
    unrolled = network.logits(attention_outputs(network, *inputs(), torch.float32))
    loss, found = loss_and_gradients(network, unrolled)
    assert loss.item() == pytest.approx(expected.item(), abs=1e-6)
    for name, gradient in gradients.items():
        assert (found[name] - gradient).abs().max() <= 1e-5 * gradient.abs().max(), name


@pytest.mark.parametrize("input_feed", [False, True])
@pytest.mark.parametrize("tied", [False, True])
def test_bfloat16_gives_the_same_gradients_to_its_own_rounding(tied: bool, input_feed: bool) -> None:
    network = network_of(dropout=0.0, tied=tied, input_feed=input_feed)
    _, gradients = loss_and_gradients(network, network(*inputs()))
    with torch.autocast("cpu", torch.bfloat16):
        unrolled = network.logits(attention_outputs(network, *inputs(), torch.bfloat16))
    _, found = loss_and_gradients(network, unrolled)
    for name, gradient in gradients.items():
        assert found[name].dtype is torch.float32
        assert (found[name] - gradient).norm() <= 0.05 * gradient.norm(), name


def test_dropout_masks_what_goes_between_the_layers_and_what_is_fed_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both masks are replaced by known ones, and a plain loop over LSTM cells uses the same."""
    network = network_of(dropout=0.4, tied=False)
    network.dropout.p = network.encoder.dropout = 0.0  # of the embeddings and of the encoder
    monkeypatch.setattr("uncurse.training.teacher_forcing.dropped", lambda values, rate: values)
    generator = torch.Generator().manual_seed(5)
    masks = [(torch.rand(STEPS, SENTENCES, 16, generator=generator) > 0.4) / 0.6 for _ in range(2)]
    given = iter(masks)
    monkeypatch.setattr("uncurse.training.input_feeding.dropout_mask", lambda like, shape, rate: next(given))
    unrolled = network.logits(attention_outputs(network, *inputs(), torch.float32))
    loss, found = loss_and_gradients(network, unrolled)
    expected, gradients = loss_and_gradients(network, reference_logits(network, *masks))
    assert loss.item() == pytest.approx(expected.item(), abs=1e-6)
    for name, gradient in gradients.items():
        assert (found[name] - gradient).abs().max() <= 1e-5 * gradient.abs().max(), name


def reference_logits(network: AttentionalLSTM, mask_between: Tensor, mask_output: Tensor) -> Tensor:
    source, lengths, target = inputs()
    encoded, state = network.encode(source, lengths)
    embedded, decoder = network.embed_target(target), network.decoder
    feed, hidden, cell, outputs = state.feed, list(state.hidden), list(state.cell), []
    for step in range(STEPS):
        value = torch.cat((embedded[:, step], feed), dim=1)
        for layer in range(2):
            parameters = (
                getattr(decoder, f"{kind}_l{layer}") for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
            )
            hidden[layer], cell[layer] = torch.lstm_cell(value, (hidden[layer], cell[layer]), *parameters)
            value = hidden[0] * mask_between[step]
        attended, _ = network.attend(encoded, hidden[1][:, None])
        feed = attended[:, 0] * mask_output[step]
        outputs.append(feed)
    return network.logits(torch.stack(outputs, dim=1))


def test_dropout_leaves_evaluation_alone() -> None:
    network = network_of(dropout=0.4, tied=False).eval()
    with torch.inference_mode():
        unrolled = network.logits(attention_outputs(network, *inputs(), torch.float32))
        assert torch.allclose(unrolled, network(*inputs()), atol=1e-6)


def test_a_dropout_mask_has_its_rate_and_keeps_the_mean() -> None:
    torch.manual_seed(6)
    mask = dropout_mask(torch.empty(0), (300, 401), 0.3)
    zeros = mask == 0.0
    assert mask[~zeros].tolist() == pytest.approx([1.0 / 0.7] * int((~zeros).sum()))
    assert zeros.double().mean().item() == pytest.approx(0.3, abs=5 * (0.3 * 0.7 / mask.numel()) ** 0.5)
    again, other = (dropout_mask(torch.empty(0), (300, 401), 0.3) for _ in range(2))
    assert not torch.equal(again, other)
    torch.manual_seed(6)
    assert torch.equal(dropout_mask(torch.empty(0), (300, 401), 0.3), mask)
    agreement = (mask[:, 1:] == mask[:, :-1]).double().mean().item()
    assert agreement == pytest.approx(0.58, abs=0.01)  # 0.7² + 0.3²: bits are not shared
