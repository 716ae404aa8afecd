"""TrustedProxies that are trusted to say who asks: their addresses, and what they add to a request."""

from collections.abc import Iterable
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from starlette.datastructures import Headers
from starlette.types import Scope

Network = IPv4Network | IPv6Network


class TrustedProxies:
    """Addresses and networks from which requests come that were sent over TLS to a proxy."""

    def __init__(self, networks: Iterable[str]) -> None:
        self._networks = tuple(ip_network(network, strict=False) for network in networks)

    def __bool__(self) -> bool:
        return bool(self._networks)

    def has(self, address: str) -> bool:
        try:
            found = ip_address(address.partition("%")[0])
        except ValueError:
            return False
        if isinstance(found, IPv6Address):
            found = found.ipv4_mapped or found
        return any(found in network for network in self._networks)

    def resolve(self, scope: Scope) -> Scope:
        """The request as the proxy got it: from the client's address, over TLS.

        Each proxy adds the address that it has seen at the end of X-Forwarded-For. So the client is the last
        that is not a proxy of ours; what stands before it is the client's own word.
        """
        peer = scope.get("client")
        if peer is None or not self.has(peer[0]):
            return scope
        given = ",".join(Headers(scope=scope).getlist("x-forwarded-for")).split(",")
        hops = [hop.strip() for hop in given if hop.strip()]
        client = peer[0]
        for hop in reversed(hops):
            if not _is_address(hop):
                break
            client = hop
            if not self.has(hop):
                break
        return {**scope, "client": (client, 0), "scheme": "https"}


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True
