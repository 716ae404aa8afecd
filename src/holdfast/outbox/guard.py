"""Which addresses a webhook may be sent to: without permission, public ones only.

A name is resolved once per delivery. All its addresses have to be public, and the connection is made to one
of those that were looked at: a second look-up could give another answer.
"""

import asyncio
import ipaddress
import socket
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final
from urllib.parse import urlsplit

from holdfast.errors import InvalidArgument
from holdfast.outbox.failure import Undelivered

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Resolve = Callable[[str, int], Awaitable[list[str]]]

REMEMBER_SECONDS = 5.0
LOOKUP_THREADS = 2
_LOWEST_FREE_PORT = 1024
_HTTPS_PORT = 443

# Named here, because what `ipaddress` calls global has changed with the releases of Python.
_NEVER: Final = [
    ipaddress.ip_network(network)
    for network in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",
        "240.0.0.0/4",
        "::/96",
        "::ffff:0:0:0/96",
        "64:ff9b:1::/48",
        "100::/64",
        "2001::/23",
        "2001:db8::/32",
        "3fff::/20",
        "5f00::/16",
        "fc00::/7",
        "fe80::/10",
        "fec0::/10",
        "ff00::/8",
    )
]
_TRANSLATED: Final = ipaddress.ip_network("64:ff9b::/96")
_SIX_TO_FOUR: Final = ipaddress.ip_network("2002::/16")


class Forbidden(Undelivered):
    """The receiver is at an address that the subscription may not be sent to."""


def is_public(address: Address) -> bool:
    if isinstance(address, ipaddress.IPv6Address):
        inner = _inner(address)
        if inner is not None:
            return is_public(inner)
    listed = any(address in network for network in _NEVER if network.version == address.version)
    return address.is_global and not address.is_multicast and not listed


def _inner(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """The IPv4 address that packets to this one end up at."""
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address in _TRANSLATED:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    if address in _SIX_TO_FOUR:
        return ipaddress.IPv4Address((int(address) >> 80) & 0xFFFFFFFF)
    return None


def refuse_internal(target: str) -> None:
    """What is plain without looking a name up. The dispatcher looks at every address again."""
    hint = "Add --allow-internal if it is meant."
    try:
        parts = urlsplit(target)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise InvalidArgument(f"{target!r} is not a URL") from None
    try:
        Guard.check(parts.scheme, port or _HTTPS_PORT)
        internal = not is_public(_without_zone(host))
    except Forbidden as error:
        raise InvalidArgument(str(error), hint=hint) from None
    except ValueError:
        internal = host in {"localhost", ""} or host.endswith(".localhost")
    if internal:
        raise InvalidArgument(f"{host!r} is an internal address", hint=hint)


class Guard:
    """Says to which address to connect, or refuses."""

    def __init__(self, *, allow_internal: bool, resolve: Resolve | None = None) -> None:
        self._allow_internal = allow_internal
        # Threads of its own: a name server that hangs must not hold up those who ask for other names.
        self._threads = ThreadPoolExecutor(LOOKUP_THREADS, "holdfast-lookup")
        self._resolve = resolve or self._look_up
        self._known: tuple[float, str, int, str] = (0.0, "", 0, "")

    def check_address(self, scheme: str, port: int) -> None:
        """Before any name is looked up."""
        if not self._allow_internal:
            self.check(scheme, port)

    @staticmethod
    def check(scheme: str, port: int) -> None:
        if scheme != "https":
            raise Forbidden(f"{scheme} is not allowed: use https, or allow internal addresses")
        if port != _HTTPS_PORT and port < _LOWEST_FREE_PORT:
            raise Forbidden(f"port {port} is not allowed: use 443 or one above 1023")

    async def place_of(self, host: str, port: int) -> str:
        until, known_host, known_port, known = self._known
        if (known_host, known_port) == (host, port) and time.monotonic() < until:
            return known
        addresses = await self._addresses(host, port)
        if not self._allow_internal:
            for address in addresses:
                if not is_public(address):
                    raise Forbidden(f"{host} is at the internal address {address}, which is not allowed")
        found = str(addresses[0])
        self._known = (time.monotonic() + REMEMBER_SECONDS, host, port, found)
        return found

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _addresses(self, host: str, port: int) -> list[Address]:
        try:
            return [_without_zone(host)]
        except ValueError:
            pass
        try:
            found = await self._resolve(host, port)
        except OSError as error:
            raise Undelivered(f"{host} cannot be resolved: {error.strerror or error}") from None
        if not found:
            raise Undelivered(f"{host} has no address")
        return [_without_zone(address) for address in found]

    async def _look_up(self, host: str, port: int) -> list[str]:
        loop = asyncio.get_running_loop()
        answers = await loop.run_in_executor(
            self._threads, lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        )
        return [str(answer[4][0]) for answer in answers]


def _without_zone(address: str) -> Address:
    """fe80::1%eth0 is fe80::1 for our purpose, and refused as such."""
    return ipaddress.ip_address(address.partition("%")[0])
