"""The hosts that a service answers for: no page of another site may use it through a browser (DNS rebinding)."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, final

from uncurse.errors import UncurseError

_AUTHORITY: Final = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(?::\d{1,5})?")
_ORIGIN: Final = re.compile(r"https?://([^/?#]+)")
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")


@final
@dataclass(frozen=True)
class HostPolicy:
    """The Host and Origin headers that are accepted."""

    names: frozenset[str]  # what Host may name, in lower case and without port
    any_address: bool = False  # Host may also be any IP address, which a rebound name never is
    trusted: frozenset[str] = frozenset()  # hosts whose pages may use the service, too

    def allows_host(self, host: str) -> bool:
        """Whether a request with this Host header is answered."""
        name = _hostname(host)
        return name is not None and (name in self.names or (self.any_address and _address(name) is not None))

    def allows_origin(self, origin: str, host: str) -> bool:
        """Whether a page of this origin may send a request with this Host header."""
        found = _ORIGIN.fullmatch(origin.lower())
        return found is not None and (found[1] == host.lower() or _hostname(found[1]) in self.trusted)


def host_policy(host: str, address: str, allowed: Iterable[str]) -> HostPolicy:
    """The policy for a service that was told to listen at `host`, which is the IP address `address`."""
    trusted = frozenset(_checked(name) for name in allowed)
    bound = ipaddress.ip_address(address)
    names = frozenset((*_LOOPBACK, str(bound), host.lower(), *trusted))
    return HostPolicy(names, bound.is_unspecified, trusted)


def _checked(name: str) -> str:
    plain = _hostname(name)
    if plain is None or (":" in name and _address(plain) is None):
        raise UncurseError(f"allowed_host = {name!r} is not allowed: give a host name without scheme and port")
    return plain


def _hostname(authority: str) -> str | None:
    """The host of `host:port`, in the form in which hosts are compared; None if it is not one."""
    if (bare := _address(authority)) is not None:
        return bare
    found = _AUTHORITY.fullmatch(authority)
    if found is None:
        return None
    name = found[1].strip("[]").lower().removesuffix(".")
    return _address(name) or name


def _address(name: str) -> str | None:
    try:
        return str(ipaddress.ip_address(name))
    except ValueError:
        return None
