"""`uncurse serve`: translations over HTTP, and a page that makes searches visible."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from uncurse.cli.options import BatchTokens, Device, Dtype, Language, Threads, WithoutScript


def serve(
    model: Annotated[str | None, typer.Option(help="A name from `uncurse models`, or a folder.")] = None,
    host: Annotated[str, typer.Option(help="Where to listen; by default nobody else can reach it.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any that is free.")] = 8000,
    token_file: Annotated[
        Path | None, typer.Option(help="A file with a token that requests must bring: Authorization: Bearer …")
    ] = None,
    examples: Annotated[Path | None, typer.Option(help="Sentences to pick on the page, one on each line.")] = None,
    max_body: Annotated[int, typer.Option(min=1, help="The most bytes of a request.")] = 1 << 18,
    max_sentences: Annotated[int, typer.Option(min=1, help="The most sentences of a request.")] = 64,
    max_pieces: Annotated[int, typer.Option(min=1, help="The most source pieces of a sentence.")] = 250,
    max_beam: Annotated[int, typer.Option(min=1, help="The widest beam.")] = 100,
    max_waiting: Annotated[int, typer.Option(min=1, help="Sentences that may wait; then requests get 503.")] = 256,
    deadline: Annotated[float, typer.Option(help="Seconds within which every request is answered.")] = 60.0,
    batch_tokens: BatchTokens = 1500,
    device: Device = "cpu",
    dtype: Dtype = "float32",
    source_lang: Language = None,
    target_lang: Language = None,
    without_script: WithoutScript = None,
    threads: Threads = 0,
) -> None:
    """Answer requests to translate, batched together, and show searches on a page; Ctrl-C stops it."""
    from uncurse.serving.app import Service
    from uncurse.serving.examples import examples_for, read_examples
    from uncurse.serving.options import Limits
    from uncurse.serving.running import address_of, is_loopback, listen, name_of, read_token, run

    limits = Limits(max_body, max_sentences, max_pieces, max_beam, max_waiting, deadline, batch_tokens)
    token = None if token_file is None else read_token(token_file)
    chosen = examples_for(model) if examples is None else read_examples(examples)
    with listen(host, port) as listening:
        import torch

        from uncurse.loading import load

        if threads:
            torch.set_num_threads(threads)
        translator = load(model, device, dtype, source_lang, target_lang, without_script)
        service = Service(translator, name_of(model), limits, token, chosen)
        typer.echo(f"{service.name} is served at {address_of(listening)}")
        if token is None and not is_loopback(listening):
            typer.echo("anyone who can reach this address can use it; --token-file asks for a token", err=True)
        run(service, listening)
