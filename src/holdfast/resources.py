"""Resources: what a run in a child process may use. The system and the worker enforce them."""

import re
from dataclasses import dataclass

from holdfast.errors import InvalidHandler

_SIZE = re.compile(r"(?P<number>\d+(\.\d+)?)\s*(?P<unit>[KMGT]?)i?B?", re.ASCII | re.IGNORECASE)
_NAMES = ("cpu", "memory", "files", "processes", "file_size")
_UNITS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}


def parse_size(value: object) -> int:
    """Bytes as a number, or a number with a unit of powers of 1024: 64K, 512M, 2G."""
    match = _SIZE.fullmatch(str(value).strip())
    if match is None or isinstance(value, bool):
        raise ValueError("give bytes (1048576) or a number with a unit (64K, 512M, 2G)")
    size = int(float(match["number"]) * 1024 ** _UNITS[match["unit"].upper()])
    if not 0 < size < 2**62:
        raise ValueError("give a size above 0 that a machine can have")
    return size


def size_text(size: int) -> str:
    """A size for people, such as 1.5G."""
    for unit in ("T", "G", "M", "K"):
        whole = 1024 ** _UNITS[unit]
        if size >= whole:
            return f"{round(size / whole, 1):g}{unit}"
    return f"{size} bytes"


@dataclass(frozen=True, slots=True, init=False)
class Resources:
    """What one run may use: seconds of CPU time, sizes in bytes or as `512M`, counts. None sets no limit."""

    cpu: float | None
    memory: int | None
    files: int | None
    processes: int | None
    file_size: int | None

    def __init__(
        self,
        *,
        cpu: float | None = None,
        memory: int | str | None = None,
        files: int | None = None,
        processes: int | None = None,
        file_size: int | str | None = None,
    ) -> None:
        set_field = object.__setattr__
        set_field(self, "cpu", _number("cpu", cpu))
        set_field(self, "memory", _size("memory", memory))
        set_field(self, "files", _whole("files", files))
        set_field(self, "processes", _whole("processes", processes))
        set_field(self, "file_size", _size("file_size", file_size))

    def as_message(self) -> dict[str, float]:
        """The limits that are set."""
        return {name: value for name in _NAMES if (value := getattr(self, name)) is not None}


def _size(name: str, given: object) -> int | None:
    try:
        return None if given is None else parse_size(given)
    except ValueError as error:
        raise InvalidHandler(f"{name} {given!r} is not a size: {error}") from None


def _number(name: str, given: object) -> float | None:
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 < given < float("inf"):
        raise InvalidHandler(f"{name} takes a number above 0, not {given!r}")
    return float(given)


def _whole(name: str, given: object) -> int | None:
    if given is not None and (isinstance(given, bool) or not isinstance(given, int) or given < 1):
        raise InvalidHandler(f"{name} takes a whole number from 1 on, not {given!r}")
    return given


NO_RESOURCE_LIMITS = Resources()
