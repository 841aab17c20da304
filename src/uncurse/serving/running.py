"""The service as a process: a socket, a server, and an end that leaves nobody without an answer."""

from __future__ import annotations

import ipaddress
import math
import socket
from pathlib import Path

import uvicorn

from uncurse.catalogue import BOXED
from uncurse.serving.app import Service


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens at an address; port 0 is any that is free."""
    try:
        (family, _, _, _, address), *_ = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        return socket.create_server(address[:2], family=family, backlog=1024)
    except OSError as error:
        raise ValueError(f"cannot listen at {host}:{port}: {error.strerror or error}") from None


def address_of(listening: socket.socket) -> str:
    """The address as it is typed into a browser."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if listening.family == socket.AF_INET6 else f"http://{host}:{port}"


def is_loopback(listening: socket.socket) -> bool:
    """Whether nobody but this computer can reach an address."""
    return ipaddress.ip_address(listening.getsockname()[0]).is_loopback


def read_token(path: Path) -> str:
    """The token in a file, without the spaces and lines around it."""
    token = path.read_text(encoding="utf-8").strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise ValueError(f"{path} must hold one token: printable ASCII without spaces")
    return token


def name_of(model: str | None) -> str:
    """What users are told of a model: its name, and of a folder no more than its own name."""
    if model is None:
        return BOXED.name
    folder = Path(model)
    return folder.resolve().name if folder.is_dir() else model


def run(service: Service, listening: socket.socket) -> None:
    """Serve until a signal comes (SIGINT, SIGTERM); what was begun is finished, which the deadline bounds."""
    config = uvicorn.Config(
        service.app(),
        log_level="warning",
        server_header=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=math.ceil(service.limits.deadline) + 5,  # for whoever never ends their request
        lifespan="on",
        ws="none",
    )
    uvicorn.Server(config).run(sockets=[listening])
