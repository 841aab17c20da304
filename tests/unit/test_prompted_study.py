"""Everything that is promised for models with an encoder works for a decoder-only folder and a prompt."""

from __future__ import annotations

import json
from copy import copy
from pathlib import Path

import pytest
import torch
from fastapi.testclient import TestClient
from support.causal_families import CAUSAL
from support.causal_folder import causal_folder
from support.problems import LIMITS

from uncurse import Certificate, Decoding, Sentence, beam_search, load
from uncurse.cli import main
from uncurse.search.forced_decoding import force_decode
from uncurse.serving.app import Service
from uncurse.study.evaluate import evaluate
from uncurse.study.plan import read_plans
from uncurse.study.study import load_study

PROMPT = "say it in English: {text}\nEnglish:"
SOURCES = ["old dogs sleep", "a cat", "the red sofa", "on and on", "hello", "a dog and a cat"]
PLAN = """
title = "A study with a prompt"
model = {model}
prompt = {prompt}
beam_sizes = [1]
small = [2]
large = [3]
baseline_beam_size = 2
max_lengths = ["q0.8", "2x+10"]
retry_max_length = "2x+10"
scores = ["log-prob", "length-norm", "f1-norm", "word-reward"]
stops = ["optimal", "beam-full"]
exact = 1
exact_budget = 20
[tuning.word-reward]
reward = [0.0, 0.5]
[dev]
source = "text"
references = ["translations"]
[test]
source = "text"
references = ["translations"]
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Text, a model with a length predictor that was fitted to its own outputs, and a plan."""
    folder = tmp_path_factory.mktemp("prompted")
    torch.set_num_threads(1)  # as the plan has it: threads are part of what a search is stored under
    config = copy(CAUSAL["llama"])
    config.max_position_embeddings = 256
    model = causal_folder(folder / "llama", config)
    for name, lines in (("text", SOURCES * 3), ("translations", SOURCES[::-1] * 3)):
        (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    plan = PLAN.format(model=json.dumps(str(model)), prompt=json.dumps(PROMPT))
    (folder / "plan.toml").write_text(plan, encoding="utf-8")
    prompt = PROMPT.replace("\n", "\\n")
    main(
        ["fit-length", "--model", str(model), "--prompt", prompt, "--source", str(folder / "text"), "--from-model"]
    )
    assert list(model.glob("length-*.safetensors"))
    return folder


def test_a_study_judges_what_a_live_search_returns(data: Path) -> None:
    flags = [str(data / "plan.toml"), "--data", str(data), "--out", str(data / "out")]
    for command in ("run", "report"):
        main(["study", command, *flags])
    assert "A study with a prompt" in (data / "out" / "report.html").read_text(encoding="utf-8")
    study = load_study(read_plans(data / "plan.toml")[""], data, data / "out")
    found = evaluate(study, lambda _: None)
    assert study.knows_length
    for size in (2, 3):
        for method in found.methods:
            score = found.score(method, study.plan.group_of(size))
            outputs = found.at["test"][size].outputs[method.name]
            live = study.translator.translate(SOURCES, beam_size=size, score=score, stop=method.stop)
            assert outputs.texts[: len(SOURCES)] == tuple(each.text for each in live)
            assert outputs.certificates[: len(SOURCES)] == tuple(each.certificate for each in live)


def test_forced_translations_have_the_log_probabilities_of_a_search(data: Path) -> None:
    translator = load(data / "llama", prompt=PROMPT)
    sentence = Sentence(tuple(translator.encode("a cat")), max_length=20)
    (result,) = beam_search(translator.model, [sentence], Decoding(4, "log-prob", n_best=4))
    assert result.certificate is not Certificate.TRUNCATED
    for each in result.hypotheses:
        assert each.tokens[-1] == translator.model.eos
        (forced,) = force_decode(translator.model, [sentence.source], [each.tokens[:-1]])
        assert forced.log_probs == pytest.approx(each.log_probs, abs=1e-4)


def test_page_and_json_of_the_service_work(data: Path) -> None:
    translator = load(data / "llama", prompt=PROMPT)
    with TestClient(Service(translator, "llama", LIMITS).app()) as client:
        assert "Explore a beam search" in client.get("/").text
        answer = client.post("/translate", json={"sentences": SOURCES[:2], "beam_size": 3}).json()
        expected = translator.translate(SOURCES[:2], beam_size=3)
        assert [each["text"] for each in answer["translations"]] == [each.text for each in expected]
        only = {"sentences": SOURCES[:1], "beam_size": 3, "n_best": 3, "only": SOURCES[:3]}
        (found,) = client.post("/translate", json=only).json()["translations"]
        assert {found["text"], *(each["text"] for each in found["others"])} == set(SOURCES[:3])
        explained = client.post("/explain", json={"sentence": SOURCES[0], "beam_size": 3}).json()
        assert explained["source_length"] == len(translator.encode(SOURCES[0]))
