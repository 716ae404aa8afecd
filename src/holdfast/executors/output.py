"""What a run prints: its beginning and its end are kept, whatever lies between is counted."""

import asyncio
import contextlib
import os
from collections.abc import Callable

HEAD_BYTES = 2048
TAIL_BYTES = 6144
PASSED_ON_BYTES = 64 * 1024
CHUNK_BYTES = 64 * 1024


class Stream:
    """One of stdout and stderr, read without waiting."""

    def __init__(
        self,
        descriptor: int,
        counted: Callable[[int], None],
        pass_on: Callable[[bytes], None],
        *,
        keep: int = 0,
    ) -> None:
        """So many bytes from its beginning are kept whole."""
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._counted = counted
        self._pass_on = pass_on
        self._keeps = keep
        self._loop = asyncio.get_running_loop()
        self._open = True
        self.begin()
        self._loop.add_reader(descriptor, self._read)

    def begin(self) -> None:
        """Of another run."""
        self.count = 0
        self._head = bytearray()
        self._tail = bytearray()
        self._whole = bytearray()

    def drain(self) -> None:
        """Read what is there by now."""
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
        """With what it could not be decoded, or was left out, marked."""
        left_out = self.count - len(self._head) - len(self._tail)
        between = f"\n… {left_out} bytes left out …\n".encode() if left_out else b""
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
        self._whole += data[: self._keeps - len(self._whole)]
        room = HEAD_BYTES - len(self._head)
        self._head += data[:room]
        self._tail += data[room:][-TAIL_BYTES:]
        del self._tail[:-TAIL_BYTES]
        self._counted(len(data))
