"""Where a sink may connect: public addresses over TLS, and what the dispatcher's administrator allows.

A host name is resolved once per connection. All of its addresses must be allowed, and the sink connects to
one of the addresses that were checked: a second lookup could return a different one.
"""

import asyncio
import ipaddress
import socket
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from holdfast.errors import ConfigurationError
from holdfast.outbox.sink import SinkConfig, Undelivered

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
Resolve = Callable[[str, int], Awaitable[list[str]]]

CACHE_SECONDS = 5.0
LOOKUP_THREADS = 2
_LOWEST_FREE_PORT = 1024
_HTTPS_PORT = 443
_ENCRYPTED: Final = {"https", "tls", "amqps"}
_HINT: Final = "The administrator of the dispatcher can allow it with HOLDFAST_OUTBOX_ALLOW."

# Listed here because the answer of `ipaddress.is_global` differs between Python releases.
_NEVER_PUBLIC: Final = [
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


class DestinationForbidden(Undelivered):
    """This dispatcher does not send to the receiver's address."""


def is_public(address: IPAddress) -> bool:
    if isinstance(address, ipaddress.IPv6Address):
        inner = _inner(address)
        if inner is not None:
            return is_public(inner)
    listed = any(address in network for network in _NEVER_PUBLIC if network.version == address.version)
    return address.is_global and not address.is_multicast and not listed


def _inner(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """The IPv4 address that receives packets sent to this address."""
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address in _TRANSLATED:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    if address in _SIX_TO_FOUR:
        return ipaddress.IPv4Address((int(address) >> 80) & 0xFFFFFFFF)
    return None


class AllowedDestinations:
    """The hosts and networks of `HOLDFAST_OUTBOX_ALLOW`: they may be internal, and need no TLS."""

    def __init__(self, entries: Iterable[str]) -> None:
        self._networks = []
        self._names = set[str]()
        for entry in entries:
            try:
                self._networks.append(ipaddress.ip_network(entry, strict=False))
            except ValueError:
                self._names.add(_normalized(entry))

    def has_name(self, host: str) -> bool:
        return _normalized(host) in self._names

    def has(self, address: IPAddress) -> bool:
        mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
        return any((mapped or address) in network for network in self._networks)


class DestinationResolver:
    """Resolves the host of a target to an address that the sink may connect to."""

    def __init__(self, allowed: Iterable[str], *, resolve: Resolve | None = None) -> None:
        self._allowed = AllowedDestinations(allowed)
        # Each resolver has its own threads: a name server that hangs must not delay other sinks.
        self._threads = ThreadPoolExecutor(LOOKUP_THREADS, "holdfast-lookup")
        self._resolve = resolve or self._look_up
        self._cached: tuple[float, tuple[str, str, int], str] = (0.0, ("", "", 0), "")

    def check_target(self, scheme: str, host: str, port: int) -> None:
        """Raise ConfigurationError if the target is forbidden for certain, without a lookup."""
        try:
            addresses = [_without_zone(host)]
        except ValueError:
            if self._allowed.has_name(host):
                return
            if _normalized(host) == "localhost" or _normalized(host).endswith(".localhost"):
                raise ConfigurationError(f"{host} is an internal address", hint=_HINT) from None
            return
        try:
            self._check(scheme, host, port, addresses)
        except DestinationForbidden as error:
            raise ConfigurationError(str(error), hint=_HINT) from None

    async def address_of(self, scheme: str, host: str, port: int) -> str:
        """Return the address to connect to, or raise DestinationForbidden."""
        until, cached_target, cached = self._cached
        if cached_target == (scheme, host, port) and time.monotonic() < until:
            return cached
        addresses = await self._addresses(host, port)
        self._check(scheme, host, port, addresses)
        found = str(addresses[0])
        self._cached = (time.monotonic() + CACHE_SECONDS, (scheme, host, port), found)
        return found

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _check(self, scheme: str, host: str, port: int, addresses: list[IPAddress]) -> None:
        if self._allowed.has_name(host) or all(map(self._allowed.has, addresses)):
            return
        for address in addresses:
            if not is_public(address) and not self._allowed.has(address):
                raise DestinationForbidden(f"{host} has the internal address {address}, which is not allowed")
        if scheme not in _ENCRYPTED:
            raise DestinationForbidden(f"{scheme} is not allowed for {host}: use a connection with TLS")
        if port != _HTTPS_PORT and port < _LOWEST_FREE_PORT:
            raise DestinationForbidden(f"port {port} of {host} is not allowed: use 443 or one above 1023")

    async def _addresses(self, host: str, port: int) -> list[IPAddress]:
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


def _normalized(host: str) -> str:
    return host.lower().rstrip(".")


def _without_zone(address: str) -> IPAddress:
    """Treat fe80::1%eth0 as fe80::1, which is refused."""
    return ipaddress.ip_address(address.partition("%")[0])


@dataclass(frozen=True)
class BrokerAddress:
    """The server that the target of a message broker names."""

    scheme: str
    host: str
    port: int
    login: str = field(repr=False)

    @property
    def endpoint(self) -> tuple[str, str, int]:
        return self.scheme, self.host, self.port

    def url_at(self, address: str) -> str:
        """The URL of this server, with one of its IP addresses instead of its name."""
        host = f"[{address}]" if ":" in address else address
        return f"{self.scheme}://{self.login}{host}:{self.port}"


def parse_broker_address(config: SinkConfig, default_ports: Mapping[str, int]) -> BrokerAddress:
    """Raise ConfigurationError unless the target is a URL of one of these schemes.

    The query of a URL can name files of the dispatcher, such as a key, or disable the verification of
    certificates. So it is accepted only where the dispatcher's own environment provides the target.
    """
    expected = " or ".join(f"{scheme}://HOST" for scheme in default_ports)
    try:
        parts = urlsplit(config.target)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise ConfigurationError(f"the target is not a URL such as {expected}") from None
    if not host or parts.scheme not in default_ports:
        raise ConfigurationError(f"the target is not a URL such as {expected}")
    if (parts.query or parts.fragment) and not config.is_reference:
        raise ConfigurationError(
            "the target has options after a question mark",
            hint="Set a variable of the dispatcher and use env:HOLDFAST_SINK_NAME as the target.",
        )
    login = parts.netloc.rpartition("@")[0]
    return BrokerAddress(
        parts.scheme, host, port or default_ports[parts.scheme], f"{login}@" if login else ""
    )
