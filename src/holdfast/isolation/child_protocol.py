"""What a worker tells its child processes: a length, then one JSON object."""

import json
import struct
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from holdfast._worker.app_import import Origin
from holdfast._workflows.memory import DEFAULT_MAX_RESULT_BYTES

LENGTH = struct.Struct(">I")
MAX_MESSAGE_BYTES = 32 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ChildBoot:
    """How to start a child process: its first message, its environment and its account."""

    origin: Origin
    log_format: str | None
    log_level: str
    worker_id: str
    environment: Mapping[str, str]
    user: str | None = None
    on_ray: bool = False
    """Whether it runs handlers on a Ray cluster."""
    max_result_bytes: int = DEFAULT_MAX_RESULT_BYTES

    def as_message(self) -> dict[str, Any]:
        return {
            "path": sys.path,
            "origin": self.origin.as_message(),
            "log_format": self.log_format,
            "log_level": self.log_level,
            "worker_id": self.worker_id,
            "on_ray": self.on_ray,
            "max_result_bytes": self.max_result_bytes,
            "terminal": sys.stderr is not None and sys.stderr.isatty(),
        }


def encode_message(message: Mapping[str, Any]) -> bytes:
    written = json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
    return LENGTH.pack(len(written)) + written


class MessageReader:
    """Splits a stream of bytes into messages. It holds at most one message of MAX_MESSAGE_BYTES."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[dict[str, Any]]:
        """Add bytes that were received, and yield the messages that are complete."""
        self._buffer += data
        while len(self._buffer) >= LENGTH.size:
            (length,) = LENGTH.unpack_from(self._buffer)
            if length > MAX_MESSAGE_BYTES:
                raise ValueError(f"a message of {length} bytes was announced")
            if len(self._buffer) < LENGTH.size + length:
                return
            written = bytes(self._buffer[LENGTH.size : LENGTH.size + length])
            del self._buffer[: LENGTH.size + length]
            yield json.loads(written.decode("utf-8", "surrogatepass"))
