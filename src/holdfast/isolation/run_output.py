"""What runs outside the worker's process print: read without blocking, passed on, and kept in part."""

import asyncio
import contextlib
import os
import sys
from collections.abc import Callable
from typing import Any

HEAD_BYTES = 2048
TAIL_BYTES = 6144
PASSED_ON_BYTES = 64 * 1024
CHUNK_BYTES = 64 * 1024


class OutputStream:
    """Reads stdout or stderr of a run without blocking, and keeps the beginning and the end."""

    def __init__(
        self,
        descriptor: int,
        counted: Callable[[int], None],
        pass_on: Callable[[bytes], None],
        *,
        keep: int = 0,
    ) -> None:
        """The first `keep` bytes are kept whole."""
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._counted = counted
        self._pass_on = pass_on
        self._max_whole = keep
        self._loop = asyncio.get_running_loop()
        self._open = True
        self.begin()
        self._loop.add_reader(descriptor, self._read)

    def begin(self) -> None:
        """Forget the output of the run before."""
        self.count = 0
        self._head = bytearray()
        self._tail = bytearray()
        self._whole = bytearray()

    def drain(self) -> None:
        """Read everything that has arrived."""
        while self._read():
            pass

    def close(self) -> None:
        if self._open:
            self._open = False
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)

    @property
    def whole(self) -> bytes:
        return bytes(self._whole)

    @property
    def text(self) -> str:
        """The beginning and the end; what was omitted or cannot be decoded is marked."""
        omitted = self.count - len(self._head) - len(self._tail)
        between = f"\n… {omitted} bytes left out …\n".encode() if omitted else b""
        return (self._head + between + self._tail).decode(errors="replace")

    def _read(self) -> bool:
        try:
            data = os.read(self._descriptor, CHUNK_BYTES) if self._open else b""
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self.close()
            return False
        self._keep(data)
        return True

    def _keep(self, data: bytes) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._pass_on(data[: max(0, PASSED_ON_BYTES - self.count)])
        self.count += len(data)
        self._whole += data[: self._max_whole - len(self._whole)]
        room = HEAD_BYTES - len(self._head)
        self._head += data[:room]
        self._tail += data[room:][-TAIL_BYTES:]
        del self._tail[:-TAIL_BYTES]
        self._counted(len(data))


def pass_on_output(stream_name: str, data: bytes) -> None:
    """Print what a run printed, as if it ran in the worker."""
    if data:
        stream = getattr(sys, stream_name)
        with contextlib.suppress(AttributeError):  # the application has replaced the stream
            stream.buffer.write(data)
            stream.buffer.flush()


def describe_output(stdout: OutputStream, stderr: OutputStream) -> dict[str, Any]:
    """What was printed; an empty stream is left out."""
    found: dict[str, Any] = {}
    for name, stream in (("stdout", stdout), ("stderr", stderr)):
        if stream.count:
            found |= {name: stream.text, f"{name}_bytes": stream.count}
    return found
