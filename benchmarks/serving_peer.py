"""One client of the service beside CTranslate2 behind the same HTTP: `python benchmarks/serving_peer.py SOURCE`.

SOURCE is Chinese text; sentences of 15 to 40 tokens are taken from its beginning. Every service runs OPUS-MT
Chinese–English in int8, and a client sends one sentence after the other to each of them in turn. CTranslate2
stands behind FastAPI and uvicorn, as ours does, and uses our tokenizer. A second thread can slow CTranslate2 down,
so it is measured with one thread, too. *Like for like* and *selected* are those of `benchmarks/peers.py`.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import ctranslate2
import uvicorn
from fastapi import Body, FastAPI
from http_load import ServiceProcess, Tally, send_all, serve_command
from rich.console import Console
from rich.table import Table

from uncurse.errors import UncurseError
from uncurse.models.download import download
from uncurse.models.load import load_model
from uncurse.models.loaded_model import ModelOptions
from uncurse.models.transformer.ctranslate2_file import read_vocabulary
from uncurse.models.vocabulary_selector import find_selector
from uncurse.serving.server import listen, url_of
from uncurse.text.marian_tokenizer import MarianTokenizer

MODEL = "opus-mt-zh-en"
MAX_LENGTH = 100  # tokens, </s> counted
LIKE_FOR_LIKE = {"score": "length-norm", "stop": "beam-full", "slots": "refill", "max_length": MAX_LENGTH}


def tokenizer_of(folder: Path) -> MarianTokenizer:
    """Pieces and words of the model."""
    return MarianTokenizer((folder / "sentencepiece.model").read_bytes(), read_vocabulary(folder / "model"))


def serve_ctranslate2(threads: int) -> None:
    """CTranslate2 as a service, until it is stopped."""
    folder = download(MODEL)
    tokenizer, vocabulary = tokenizer_of(folder), read_vocabulary(folder / "model")
    translator = ctranslate2.Translator(
        str(folder / "model"), device="cpu", compute_type="int8", intra_threads=threads, inter_threads=1
    )
    app = FastAPI()

    @app.post("/translate")
    def translate(
        sentences: Annotated[list[str], Body()], beam_size: Annotated[int, Body()]
    ) -> dict[str, list[dict[str, str]]]:
        names = [[vocabulary.tokens[token] for token in source] for source in tokenizer.encode(sentences)]
        results = translator.translate_batch(
            names, beam_size=beam_size, length_penalty=1, max_decoding_length=MAX_LENGTH - 1
        )
        found = [[vocabulary.find(token) or 0 for token in result.hypotheses[0]] for result in results]
        return {"translations": [{"text": vocabulary.decode(each)} for each in found]}

    listening = listen("127.0.0.1", 0)
    print(url_of(listening), flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="error")).run(sockets=[listening])


def compare(options: argparse.Namespace, console: Console) -> None:
    """Print the latencies of each service."""
    folder = download(MODEL)
    lines = options.source.read_text(encoding="utf-8").split("\n")
    pieces = tokenizer_of(folder).encode(lines)
    lines = [line for line, each in zip(lines, pieces, strict=True) if 15 <= len(each) <= 40][: options.lines]
    threads = str(options.threads)
    ours = serve_command("--model", MODEL, "--dtype", "int8", "--threads", threads)
    theirs = [sys.executable, __file__, str(options.source), "--serve", "--threads"]
    systems: dict[str, tuple[list[str], dict[str, Any]]] = {
        f"CTranslate2, {threads} threads": ([*theirs, threads], {}),
        "CTranslate2, one thread": ([*theirs, "1"], {}),
        "ours, like for like": (ours, LIKE_FOR_LIKE),
        "ours, default": (ours, {}),
    }
    try:
        find_selector(folder, load_model(ModelOptions(MODEL)).fingerprint)
        systems["ours, selected"] = ([*ours, "--vocabulary-selection"], LIKE_FOR_LIKE)
    except UncurseError as error:
        console.print(f"ours, selected, is left out: {error}", highlight=False)
    with ExitStack() as stack:
        running: dict[str, ServiceProcess] = {}
        for command, _ in systems.values():
            key = " ".join(command)
            if key not in running:
                running[key] = stack.enter_context(ServiceProcess.running(command))
        tallies = {name: Tally() for name in systems}
        for turn in range(options.rounds + 1):
            for name, (command, fields) in systems.items():
                tally = tallies[name] if turn else Tally()  # the first warms up
                asked = {"beam_size": options.beam_size, **fields}
                port = running[" ".join(command)].port
                asyncio.run(send_all(port, 1, lines if turn else lines[:2], asked, {}, tally))
    asked_for = f"b = {options.beam_size}, {len(lines)} sentences, {options.rounds} rounds in turn"
    table = Table(title=f"{MODEL} int8, one client, {asked_for}")
    for column in ("service", "p50 ms", "p95 ms", "failed"):
        table.add_column(column, justify="left" if column == "service" else "right")
    for name, tally in tallies.items():
        milliseconds = (f"{1000 * tally.quantile(share):.0f}" for share in (0.50, 0.95))
        table.add_row(name, *milliseconds, str(tally.wrong))
    console.print(table)


def main() -> None:
    """Serve, or compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("--beam-size", type=int, default=5)
    parser.add_argument("--lines", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--serve", action="store_true", help="be the service with CTranslate2")
    options = parser.parse_args()
    if options.serve:
        serve_ctranslate2(options.threads)
    elif not options.source.exists():
        sys.exit(f"{options.source} does not exist: give a file of Chinese sentences")
    else:
        compare(options, Console(width=110))


if __name__ == "__main__":
    main()
