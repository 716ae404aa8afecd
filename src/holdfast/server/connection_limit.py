"""How many connections a server accepts: in total, from one address, and in reserve for probes."""

import resource
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from ipaddress import IPv6Address, ip_address

BACKLOG = 128
# The event loop may accept a whole backlog before it handles the first; the rest is for the database.
RESERVED_FILES = BACKLOG + 96
FOR_PROBES = 32
FIRST_REQUEST_SECONDS = 10.0
"""How long a connection has until its first request begins, with TLS and the head of that request."""


@dataclass(slots=True, eq=False)
class TrackedConnection:
    """One accepted connection. `drop` closes it without a response."""

    source: str
    drop: Callable[[], None]
    probes_only: bool = False
    idle_until: float = 0.0


@dataclass
class ConnectionLimiter:
    """All connections of a server.

    If the limit is reached, a connection without a request in progress is dropped: one of the same source if
    that source is over its own limit, else one of the source that has most. If every connection has a request
    in progress, the new connection may only probe.
    """

    maximum: int
    maximum_per_source: int
    is_exempt: Callable[[str], bool] = lambda _: False
    _connections: set[TrackedConnection] = field(default_factory=set)
    _sources: Counter[str] = field(default_factory=Counter)
    _idle: dict[str, dict[TrackedConnection, None]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._connections)

    def admit(self, source: str, drop: Callable[[], None]) -> TrackedConnection | None:
        source_is_full = self._sources[source] >= self.maximum_per_source and not self.is_exempt(source)
        connection = TrackedConnection(source, drop)
        is_full = source_is_full or len(self) >= self.maximum
        if is_full and not self._drop_idle(source if source_is_full else None):
            if len(self) >= self.maximum + FOR_PROBES:
                return None
            connection.probes_only = True
        self._connections.add(connection)
        self._sources[source] += 1
        self.mark_idle(connection, FIRST_REQUEST_SECONDS)
        return connection

    def mark_idle(self, connection: TrackedConnection, seconds: float) -> None:
        """It has no request in progress, and may stay so for this long."""
        if connection in self._connections:
            connection.idle_until = time.monotonic() + seconds
            self._idle.setdefault(connection.source, {})[connection] = None

    def mark_busy(self, connection: TrackedConnection) -> None:
        idle = self._idle.get(connection.source, {})
        idle.pop(connection, None)
        if not idle:
            self._idle.pop(connection.source, None)

    def remove(self, connection: TrackedConnection) -> None:
        if connection not in self._connections:
            return
        self.mark_busy(connection)
        self._connections.discard(connection)
        self._sources[connection.source] -= 1
        if not self._sources[connection.source]:
            del self._sources[connection.source]

    async def drop_overdue(self) -> None:
        """Drop connections that were idle for too long. To be called every second."""
        now = time.monotonic()
        for connection in [one for idle in self._idle.values() for one in idle if one.idle_until <= now]:
            self.remove(connection)
            connection.drop()

    def _drop_idle(self, source: str | None) -> bool:
        if source is None:
            source = max(self._idle, key=lambda one: len(self._idle[one]), default=None)
        oldest = next(iter(self._idle.get(source or "", ())), None)
        if oldest is None:
            return False
        self.remove(oldest)
        oldest.drop()
        return True


def source_of(address: str) -> str:
    """What counts as one client: an IPv4 address, or an IPv6 network of 64 bits, which is one customer's."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if not isinstance(found, IPv6Address):
        return str(found)
    return str(found.ipv4_mapped or f"{IPv6Address(int(found) >> 64 << 64)}/64")


def raise_file_limit() -> None:
    """Raise the soft limit of open files to the hard limit: each connection is an open file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def max_connections_allowed(wanted: int) -> int:
    """`wanted`, or fewer if the limit of open files does not allow that many."""
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if allowed == resource.RLIM_INFINITY:
        return wanted
    return max(1, min(wanted, allowed - RESERVED_FILES - FOR_PROBES))
