"""Messages between a worker and its children: their length, then one JSON object."""

import json
import struct
from collections.abc import Iterator, Mapping
from typing import Any

LENGTH = struct.Struct(">I")
MAX_BYTES = 32 * 1024 * 1024


class BadFrame(Exception):
    """What came is not one of our messages."""


def frame(message: Mapping[str, Any]) -> bytes:
    written = json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
    return LENGTH.pack(len(written)) + written


class Frames:
    """What came so far, and has not made a message yet."""

    def __init__(self) -> None:
        self._read = bytearray()

    def add(self, data: bytes) -> Iterator[dict[str, Any]]:
        self._read += data
        while len(self._read) >= LENGTH.size:
            (length,) = LENGTH.unpack_from(self._read)
            if length > MAX_BYTES:
                raise BadFrame(f"a message of {length} bytes was announced")
            if len(self._read) < LENGTH.size + length:
                return
            written = bytes(self._read[LENGTH.size : LENGTH.size + length])
            del self._read[: LENGTH.size + length]
            yield _decoded(written)


def _decoded(written: bytes) -> dict[str, Any]:
    try:
        message = json.loads(written.decode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError) as error:
        raise BadFrame(f"a message cannot be read: {error}") from error
    if not isinstance(message, dict):
        raise BadFrame("a message is not an object")
    return message
