"""`uncurse serve`: translations over HTTP, and a page that makes searches visible."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from uncurse.cli.options import BatchTokens, Threads, use_threads, with_model_options
from uncurse.errors import needs_extra
from uncurse.models.loaded_model import ModelOptions


@with_model_options
def serve(
    model_options: ModelOptions,
    host: Annotated[
        str, typer.Option(help="Address to listen on; the default is reachable from this computer only.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0: any free port.")] = 8000,
    token_file: Annotated[
        Path | None, typer.Option(help="File with a token that requests must send: Authorization: Bearer TOKEN.")
    ] = None,
    allowed_host: Annotated[
        list[str] | None,
        typer.Option(help="Another host name to answer for, besides the address and localhost; repeatable."),
    ] = None,
    examples: Annotated[
        Path | None, typer.Option(help="File with example sentences for the page, one per line.")
    ] = None,
    max_body: Annotated[int, typer.Option(min=1, help="Maximum request body, in bytes.")] = 1 << 18,
    max_sentences: Annotated[int, typer.Option(min=1, help="Maximum sentences per request.")] = 64,
    max_source_length: Annotated[int, typer.Option(min=1, help="Maximum tokens per sentence.")] = 250,
    max_beam_size: Annotated[int, typer.Option(min=1, help="Maximum beam size.")] = 100,
    max_waiting: Annotated[
        int, typer.Option(min=1, help="Maximum sentences in the queue; further requests get status 503.")
    ] = 256,
    deadline: Annotated[
        float, typer.Option(help="Seconds after which a request is answered with the best found so far.")
    ] = 60.0,
    max_connections: Annotated[int, typer.Option(min=1, help="Maximum number of open connections.")] = 500,
    client_timeout: Annotated[
        float, typer.Option(help="Seconds a client may take to send a request or to read the response.")
    ] = 20.0,
    batch_tokens: BatchTokens = 1500,
    threads: Threads = 0,
) -> None:
    """Translate over HTTP, with the sentences of all requests batched together; Ctrl-C stops it."""
    with needs_extra("serve"):
        from uncurse.serving.app import Service
    from uncurse.serving.examples import examples_for, read_examples
    from uncurse.serving.hosts import host_policy
    from uncurse.serving.limits import ServiceLimits
    from uncurse.serving.server import display_name, is_loopback, listen, model_flags, read_token, run, url_of

    limits = ServiceLimits(
        body=max_body,
        sentences=max_sentences,
        source_length=max_source_length,
        beam_size=max_beam_size,
        waiting=max_waiting,
        deadline=deadline,
        batch_tokens=batch_tokens,
        connections=max_connections,
        client_timeout=client_timeout,
    )
    token = None if token_file is None else read_token(token_file)
    model = model_options.model
    sentences = examples_for(model) if examples is None else read_examples(examples)
    with listen(host, port) as listening:
        hosts = host_policy(host, listening.getsockname()[0], allowed_host or ())
        from uncurse.translation.translator import load_translator

        cpu_threads = use_threads(threads)
        translator = load_translator(model_options)
        service = Service(
            translator=translator,
            name=display_name(model),
            model_flags=model_flags(model_options),
            limits=limits,
            token=token,
            examples=sentences,
            cpu_threads=cpu_threads if model_options.device == "cpu" else 1,
            hosts=hosts,
        )
        typer.echo(f"{service.name} is running at {url_of(listening)}")
        if token is None and not is_loopback(listening):
            typer.echo("anyone who can reach this address can use it; --token-file requires a token", err=True)
        run(service, listening)
