"""How many connections there may be: in all, from one address, and for probes when there is no room."""

import resource
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from ipaddress import IPv6Address, ip_address

BACKLOG = 128
# The event loop may accept a whole backlog before it looks at the first; the rest is for the database.
RESERVED_FILES = BACKLOG + 96
FOR_PROBES = 32


@dataclass(slots=True, eq=False)
class TrackedConnection:
    """One connection. `drop` ends it without a word."""

    source: str
    drop: Callable[[], None]
    probes_only: bool = False


@dataclass
class ConnectionLimiter:
    """Every connection of a server.

    When there is no room for a new one, one that has not asked for anything yet goes: of the same address
    if that has too many, else of the address that has most. If all have asked, the new one may only probe.
    """

    most: int
    most_per_source: int
    is_exempt: Callable[[str], bool] = lambda _: False
    _places: set[TrackedConnection] = field(default_factory=set)
    _sources: Counter[str] = field(default_factory=Counter)
    _silent: dict[str, dict[TrackedConnection, None]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._places)

    def admit(self, source: str, drop: Callable[[], None]) -> TrackedConnection | None:
        crowded = self._sources[source] >= self.most_per_source and not self.is_exempt(source)
        place = TrackedConnection(source, drop)
        if (crowded or len(self) >= self.most) and not self._make_room(source if crowded else None):
            if len(self) >= self.most + FOR_PROBES:
                return None
            place.probes_only = True
        self._places.add(place)
        self._sources[source] += 1
        self.silent(place)
        return place

    def silent(self, place: TrackedConnection) -> None:
        """It has not asked for anything, or has its answer."""
        if place in self._places:
            self._silent.setdefault(place.source, {})[place] = None

    def asking(self, place: TrackedConnection) -> None:
        silent = self._silent.get(place.source, {})
        silent.pop(place, None)
        if not silent:
            self._silent.pop(place.source, None)

    def leave(self, place: TrackedConnection) -> None:
        if place not in self._places:
            return
        self.asking(place)
        self._places.discard(place)
        self._sources[place.source] -= 1
        if not self._sources[place.source]:
            del self._sources[place.source]

    def _make_room(self, source: str | None) -> bool:
        if source is None:
            source = max(self._silent, key=lambda one: len(self._silent[one]), default=None)
        oldest = next(iter(self._silent.get(source or "", ())), None)
        if oldest is None:
            return False
        self.leave(oldest)
        oldest.drop()
        return True


def source_of(address: str) -> str:
    """Who is counted as one: an address, or the network of 64 bits that one customer of IPv6 has."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if not isinstance(found, IPv6Address):
        return str(found)
    return str(found.ipv4_mapped or f"{IPv6Address(int(found) >> 64 << 64)}/64")


def raise_file_limit() -> None:
    """Each connection is an open file: take as many as this process is allowed to take."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def max_connections_allowed(wanted: int) -> int:
    """How many connections the open files of this process are enough for."""
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if allowed == resource.RLIM_INFINITY:
        return wanted
    return max(1, min(wanted, allowed - RESERVED_FILES - FOR_PROBES))
