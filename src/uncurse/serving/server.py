"""The service as a process: a socket, a server, and a stop that answers every request that was taken."""

from __future__ import annotations

import gc
import ipaddress
import math
import shlex
import socket
from dataclasses import fields
from pathlib import Path
from typing import Final

import uvicorn

from uncurse.errors import UncurseError
from uncurse.models.loaded_model import ModelOptions
from uncurse.models.pretrained_models import BUNDLED
from uncurse.serving.app import Service
from uncurse.serving.connection import guarded_protocol
from uncurse.serving.limits import MAX_HEADER_BYTES
from uncurse.storage.atomic import read_regular_file

MAX_TOKEN_BYTES: Final = 1 << 12  # a header has room for four times as much
KEEP_ALIVE: Final = 15  # seconds that an idle connection stays open
FILES: Final = ("vocabulary_selector", "length_predictor")  # options of a model that are paths


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens at an address; port 0 is any that is free."""
    try:
        (family, _, _, _, address), *_ = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        return socket.create_server(address[:2], family=family, backlog=1024)
    except OSError as error:
        reason = (error.strerror or str(error)).partition(" (while attempting")[0]  # the address is named already
        raise UncurseError(f"cannot listen on {host}:{port}: {reason}") from None


def url_of(listening: socket.socket) -> str:
    """The address as it is typed into a browser."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if listening.family == socket.AF_INET6 else f"http://{host}:{port}"


def is_loopback(listening: socket.socket) -> bool:
    """Whether only this computer can reach an address."""
    return ipaddress.ip_address(listening.getsockname()[0]).is_loopback


def read_token(path: Path) -> str:
    """The token in a file, without the white space around it."""
    token = read_regular_file(path, MAX_TOKEN_BYTES).decode("ascii", "replace").strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise UncurseError(f"{path} must contain one token: printable ASCII without spaces")
    return token


def display_name(model: str | None) -> str:
    """How users see a model: by its name; of a folder only the last part is shown."""
    if model is None:
        return BUNDLED.name
    folder = Path(model)
    return folder.resolve().name if folder.is_dir() else model


def model_flags(options: ModelOptions) -> str:
    """How the command line is told to run a model in the same way; of files only the last part is shown."""
    words = []
    for field in fields(options):
        value = getattr(options, field.name)
        if field.name != "model" and value != field.default:
            given = Path(value).name if field.name in FILES else value
            words += ["--" + field.name.replace("_", "-"), *([] if value is True else [given])]
    return shlex.join(words)


def server_of(service: Service) -> uvicorn.Server:
    """The server; when it stops, requests that were taken are answered, within the deadline."""
    limits = service.limits
    config = uvicorn.Config(
        service.app(),
        http=guarded_protocol(limits),
        h11_max_incomplete_event_size=MAX_HEADER_BYTES,
        log_level="error",  # else every client that speaks no HTTP writes a line into the log
        access_log=False,
        proxy_headers=False,  # nothing depends on them
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=math.ceil(limits.client_timeout + limits.deadline) + 5,
        lifespan="on",
        ws="none",
    )
    return uvicorn.Server(config)


def run(service: Service, listening: socket.socket) -> None:
    """Serve until SIGINT or SIGTERM."""
    gc.collect()
    gc.freeze()  # what is loaded stays; to look through it again and again would hold up every request
    server_of(service).run(sockets=[listening])
