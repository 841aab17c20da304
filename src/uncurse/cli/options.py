"""Options that several subcommands have."""

from __future__ import annotations

from typing import Annotated

import typer


def in_utf8(text: str) -> str:
    """Refuse a text that the shell gave in another encoding."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise typer.BadParameter("it is not in UTF-8") from None
    return text


BatchTokens = Annotated[int, typer.Option(min=1, help="Source pieces searched for together.")]
Device = Annotated[str, typer.Option(help="cpu, cuda, cuda:1, mps.")]
Dtype = Annotated[str, typer.Option(help="float32, int8, bfloat16 or float16: what a Transformer computes in.")]
Language = Annotated[str | None, typer.Option(help="For models of many languages.")]
WithoutScript = Annotated[
    str | None, typer.Option(help="Never say pieces with letters of a script (cjk, cyrillic, …); faster.")
]
Threads = Annotated[int, typer.Option(min=0, help="CPU threads; 0 leaves it to PyTorch.")]
Engine = Annotated[str | None, typer.Option(help="ray, or ray:ADDRESS of a cluster, instead of this process.")]
Workers = Annotated[int, typer.Option(min=0, help="How many on the cluster; 0: as many as it has room for.")]
