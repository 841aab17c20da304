"""Which Host and Origin headers are accepted."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient
from support.problems import LIMITS, problem_of
from support.service import letter_translator

from uncurse import UncurseError
from uncurse.serving.app import Service
from uncurse.serving.hosts import HostPolicy, host_policy

LOCAL = host_policy("127.0.0.1", "127.0.0.1", ["Translate.Example."])


@pytest.mark.parametrize(
    ("policy", "host", "allowed"),
    [
        (LOCAL, "127.0.0.1:8000", True),
        (LOCAL, "localhost", True),
        (LOCAL, "LOCALHOST.:8000", True),
        (LOCAL, "[::1]:8000", True),
        (LOCAL, "translate.example:443", True),
        (LOCAL, "evil.example", False),
        (LOCAL, "127.0.0.1.evil.example", False),
        (LOCAL, "localhost@evil.example", False),
        (LOCAL, "localhost:8000:1", False),
        (LOCAL, "192.168.1.5", False),
        (LOCAL, "", False),
        (host_policy("0.0.0.0", "0.0.0.0", []), "192.168.1.5:8000", True),
        (host_policy("0.0.0.0", "0.0.0.0", []), "evil.example", False),
        (host_policy("::", "::", []), "[2001:DB8::1]:80", True),
        (host_policy("box.example", "192.168.1.5", []), "box.example:8000", True),
        (host_policy("box.example", "192.168.1.5", []), "192.168.1.5", True),
        (host_policy("box.example", "192.168.1.5", []), "192.168.1.6", False),
    ],
)
def test_the_address_localhost_and_given_names_are_allowed_and_no_others(
    policy: HostPolicy, host: str, allowed: bool
) -> None:
    assert policy.allows_host(host) == allowed


@pytest.mark.parametrize(
    ("origin", "allowed"),
    [
        ("http://localhost:8000", True),
        ("HTTP://LOCALHOST:8000", True),
        ("https://translate.example", True),  # a page behind a proxy that was named on the command line
        ("http://localhost:3000", False),
        ("http://localhost", False),
        ("http://evil.example", False),
        ("http://localhost:8000.evil.example", False),
        ("null", False),
        ("", False),
    ],
)
def test_a_page_may_use_the_service_only_from_its_own_origin(origin: str, allowed: bool) -> None:
    assert LOCAL.allows_origin(origin, "localhost:8000") == allowed


@pytest.mark.parametrize("name", ["http://a.example", "a.example:80", "a/b", "*", "", "a b"])
def test_an_allowed_host_is_a_name_without_scheme_and_port(name: str) -> None:
    with pytest.raises(UncurseError, match="without scheme and port"):
        host_policy("127.0.0.1", "127.0.0.1", [name])


def test_foreign_hosts_and_origins_are_refused_before_anything_else() -> None:
    service = Service(letter_translator(), "letters", LIMITS, hosts=LOCAL)
    with TestClient(service.app(), base_url="http://localhost:8000") as client:
        for path in ("/", "/health", "/methods", "/metrics", "/nothing"):
            problem_of(client.get(path, headers={"host": "evil.example"}), 421)
            problem_of(client.get(path, headers={"origin": "http://evil.example"}), 403)
        body = {"sentences": ["a"]}
        problem_of(client.post("/translate", json=body, headers={"host": "evil.example"}), 421)
        problem_of(client.post("/translate", json=body, headers={"origin": "null"}), 403)
        own = {"origin": "http://localhost:8000"}
        assert client.post("/translate", json=body, headers=own).status_code == 200
        assert client.post("/translate", json=body).status_code == 200
