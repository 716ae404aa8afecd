"""Which addresses a sink may reach: public ones over TLS, and what the dispatcher's administrator allows.

A name is resolved once per connection. All its addresses have to be allowed, and the connection is made to
one of those that were checked: a second look-up could return another address.
"""

import asyncio
import ipaddress
import socket
import time
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from holdfast.errors import ConfigurationError
from holdfast.outbox.failure import Undelivered

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Resolve = Callable[[str, int], Awaitable[list[str]]]

REMEMBER_SECONDS = 5.0
LOOKUP_THREADS = 2
_LOWEST_FREE_PORT = 1024
_HTTPS_PORT = 443
_ENCRYPTED: Final = {"https", "tls", "amqps"}
_HINT: Final = "The administrator of the dispatcher can allow it: HOLDFAST_OUTBOX_ALLOW."

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
    """The receiver is at an address that this dispatcher does not send to."""


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


class Allowed:
    """The hosts and networks that `HOLDFAST_OUTBOX_ALLOW` names: internal ones, or ones without TLS."""

    def __init__(self, entries: Iterable[str] = ()) -> None:
        self._networks = []
        self._names = set[str]()
        for entry in entries:
            try:
                self._networks.append(ipaddress.ip_network(entry, strict=False))
            except ValueError:
                self._names.add(_plain(entry))

    def has_name(self, host: str) -> bool:
        return _plain(host) in self._names

    def has(self, address: Address) -> bool:
        mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
        return any((mapped or address) in network for network in self._networks)


class Guard:
    """Says to which address to connect, or refuses."""

    def __init__(self, allowed: Allowed, *, resolve: Resolve | None = None) -> None:
        self._allowed = allowed
        # Threads of its own: a name server that hangs must not hold up those who ask for other names.
        self._threads = ThreadPoolExecutor(LOOKUP_THREADS, "holdfast-lookup")
        self._resolve = resolve or self._look_up
        self._known: tuple[float, tuple[str, str, int], str] = (0.0, ("", "", 0), "")

    def check_target(self, scheme: str, host: str, port: int) -> None:
        """Refuse what is plain without a look-up, when the sink is built."""
        try:
            addresses = [_without_zone(host)]
        except ValueError:
            if self._allowed.has_name(host):
                return
            if _plain(host) == "localhost" or _plain(host).endswith(".localhost"):
                raise ConfigurationError(f"{host} is an internal address", hint=_HINT) from None
            return
        try:
            self._check(scheme, host, port, addresses)
        except Forbidden as error:
            raise ConfigurationError(str(error), hint=_HINT) from None

    async def address_of(self, scheme: str, host: str, port: int) -> str:
        """The address to connect to. Raise Forbidden if the receiver may not be reached."""
        until, known_target, known = self._known
        if known_target == (scheme, host, port) and time.monotonic() < until:
            return known
        addresses = await self._addresses(host, port)
        self._check(scheme, host, port, addresses)
        found = str(addresses[0])
        self._known = (time.monotonic() + REMEMBER_SECONDS, (scheme, host, port), found)
        return found

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _check(self, scheme: str, host: str, port: int, addresses: list[Address]) -> None:
        if self._allowed.has_name(host) or all(map(self._allowed.has, addresses)):
            return
        for address in addresses:
            if not is_public(address) and not self._allowed.has(address):
                raise Forbidden(f"{host} is at the internal address {address}, which is not allowed")
        if scheme not in _ENCRYPTED:
            raise Forbidden(f"{scheme} is not allowed for {host}: use a connection with TLS")
        if port != _HTTPS_PORT and port < _LOWEST_FREE_PORT:
            raise Forbidden(f"port {port} of {host} is not allowed: use 443 or one above 1023")

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


def _plain(host: str) -> str:
    return host.lower().rstrip(".")


def _without_zone(address: str) -> Address:
    """fe80::1%eth0 is fe80::1 for our purpose, and refused as such."""
    return ipaddress.ip_address(address.partition("%")[0])
