"""Connections: what a client can hold on to before its request is even looked at."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from contextlib import closing
from urllib.parse import urlsplit

import pytest
from support.batcher import wait_until
from support.service import letter_translator, serving

from uncurse.serving.app import Service
from uncurse.serving.limits import MAX_HEADER_BYTES, MAX_HEADERS, ServiceLimits

TIMEOUT = 0.4  # seconds
LIMITS = ServiceLimits(connections=12, client_timeout=TIMEOUT)
HEAD = b"POST /translate HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
BODY = b'{"sentences": ["abc"]}'
GET = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n"


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with serving(Service(letter_translator(), "letters", LIMITS, token="s3cret")) as url:
        found = urlsplit(url).port
        assert found is not None
        yield found


@pytest.fixture
def client(port: int) -> Iterator[socket.socket]:
    with connected(port) as client:
        yield client


def connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=30)


def read_all(client: socket.socket) -> bytes:
    """Everything until the service closes the connection."""
    found = b""
    while True:
        try:
            chunk = client.recv(1 << 16)
        except ConnectionResetError:
            return found
        if not chunk:
            return found
        found += chunk


def sent_before_closing(client: socket.socket, part: bytes, most: int, pause: float = 0.0) -> int:
    """How many bytes can be sent, part by part, until the service closes the connection."""
    sent = 0
    while sent < most:
        try:
            client.sendall(part)
        except (ConnectionResetError, BrokenPipeError):
            break
        sent += len(part)
        time.sleep(pause)
    return sent


def problem_in(response: bytes, status: int) -> str:
    head, _, body = response.partition(b"\r\n\r\n")
    assert head.startswith(f"HTTP/1.1 {status} ".encode()), response
    assert b"content-type: application/problem+json" in head.lower()
    assert b"connection: close" in head.lower()
    problem = json.loads(body)
    assert problem["status"] == status
    return str(problem["detail"])


def test_headers_without_end_are_cut_off(client: socket.socket) -> None:
    client.sendall(GET)
    assert sent_before_closing(client, b"X-Small: 1\r\n" * 1000, 40_000_000) < 10_000_000  # buffers of the socket


def test_headers_that_are_too_large_or_too_many_are_a_problem(port: int) -> None:
    large = GET + b"X: " + b"a" * MAX_HEADER_BYTES + b"\r\n"
    many = GET + b"X: 1\r\n" * MAX_HEADERS
    endless = GET + b"a" * (MAX_HEADER_BYTES + 1)
    long_path = b"GET /" + b"a" * MAX_HEADER_BYTES + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    for sent in (large, many, long_path):
        with connected(port) as client:
            client.sendall(sent + b"Connection: close\r\n\r\n")
            problem_in(read_all(client), 431)
    with connected(port) as client:
        client.sendall(endless)
        problem_in(read_all(client), 431)


@pytest.mark.parametrize(
    "sent", [b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n"]
)
def test_what_is_not_http_is_a_problem(client: socket.socket, sent: bytes) -> None:
    client.sendall(sent)
    problem_in(read_all(client), 400)


def test_a_body_that_breaks_the_rules_is_a_problem(client: socket.socket) -> None:
    client.sendall(HEAD + b"Authorization: Bearer s3cret\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n")
    problem_in(read_all(client), 400)


@pytest.mark.parametrize("sent", [b"", b"G", GET, HEAD + b"Content-Le"])
def test_a_half_sent_request_is_closed_in_time(client: socket.socket, sent: bytes) -> None:
    began = time.monotonic()
    client.sendall(sent)
    response = read_all(client)
    assert TIMEOUT / 2 < time.monotonic() - began < 10 * TIMEOUT
    if sent:
        assert problem_in(response, 408) == "the request took too long to arrive"
    else:
        assert response == b""


def test_a_trickle_of_bytes_does_not_keep_a_connection_open(client: socket.socket) -> None:
    began = time.monotonic()
    client.settimeout(TIMEOUT / 8)
    response = b""
    client.sendall(GET)
    while not response and time.monotonic() - began < 20 * TIMEOUT:
        try:
            client.sendall(b"a")
            response = client.recv(1 << 16)
        except TimeoutError:
            continue
    assert response.startswith(b"HTTP/1.1 408 ")
    assert time.monotonic() - began < 10 * TIMEOUT


@pytest.mark.parametrize("part", [b"", BODY[:5]])
def test_a_half_sent_body_is_a_problem_in_time(client: socket.socket, part: bytes) -> None:
    began = time.monotonic()
    length = b"Authorization: Bearer s3cret\r\nContent-Length: %d\r\n\r\n" % len(BODY)
    client.sendall(HEAD + length + part)
    problem_in(read_all(client), 408)
    assert TIMEOUT / 2 < time.monotonic() - began < 10 * TIMEOUT


def test_a_body_after_a_refusal_does_not_keep_a_connection_open(client: socket.socket) -> None:
    client.sendall(HEAD + b"Content-Length: 999999\r\n\r\n")
    assert client.recv(1 << 16).startswith(b"HTTP/1.1 401 ")
    assert sent_before_closing(client, b"a", 200, pause=TIMEOUT / 8) < 100


def test_a_client_that_does_not_read_is_dropped(port: int) -> None:
    with closing(socket.socket()) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.settimeout(30)
        client.connect(("127.0.0.1", port))
        page = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
        client.sendall(page * 200)  # their responses fill every buffer
        time.sleep(4 * TIMEOUT)
        assert read_all(client).count(b"HTTP/1.1 200 ") < 200


def test_connections_beyond_the_limit_are_told_to_come_back(port: int) -> None:
    clients = [connected(port) for _ in range(LIMITS.connections + 3)]
    refused = [read_all(client) for client in clients[LIMITS.connections :]]
    for response in refused:
        assert problem_in(response, 503) == "too many connections"
        assert b"retry-after: 1\r\n" in response.lower()
    for client in clients:
        client.close()

    def answered() -> bool:
        with connected(port) as client:
            client.sendall(GET + b"Connection: close\r\n\r\n")
            return read_all(client).startswith(b"HTTP/1.1 200 ")

    wait_until(answered)


def test_requests_one_after_the_other_share_a_connection(client: socket.socket) -> None:
    for _ in range(3):
        client.sendall(GET + b"\r\n")
        assert client.recv(1 << 16).startswith(b"HTTP/1.1 200 ")
        time.sleep(TIMEOUT / 2)
    client.sendall((GET + b"\r\n") * 5)  # pipelined
    found = b""
    while found.count(b"HTTP/1.1 200 ") < 5:
        found += client.recv(1 << 16)


def test_an_idle_connection_outlives_the_time_for_a_request(client: socket.socket) -> None:
    client.sendall(GET + b"\r\n")
    assert client.recv(1 << 16).startswith(b"HTTP/1.1 200 ")
    time.sleep(3 * TIMEOUT)
    client.sendall(GET + b"\r\n")
    assert client.recv(1 << 16).startswith(b"HTTP/1.1 200 ")
