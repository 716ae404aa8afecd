"""Events as JSON lines at the end of a file, on disk before they count as delivered."""

import asyncio
import os
from pathlib import Path
from typing import Literal

from holdfast.errors import ConfigurationError
from holdfast.outbox.event import OutgoingEvent
from holdfast.outbox.sink import Options, Place, Undelivered


class FileOptions(Options):
    fsync: Literal["always", "never"] = "always"


class FileSink:
    """While one write is under way, the next lines gather; then all of them go at once."""

    concurrency = 500
    timeout = 15.0

    def __init__(self, place: Place) -> None:
        self._fsync = FileOptions.model_validate(place.options).fsync == "always"
        self._path = _inside(place.directory, place.target)
        self._descriptor: int | None = None
        self._torn = True
        self._waiting: list[tuple[bytes, asyncio.Future[None]]] = []
        self._writing: asyncio.Task[None] | None = None

    async def send(self, event: OutgoingEvent, /) -> None:
        written = asyncio.get_running_loop().create_future()
        self._waiting.append((event.structured.body + b"\n", written))
        if self._writing is None:
            self._writing = asyncio.create_task(self._write_all())
        await written

    async def close(self) -> None:
        if self._writing is not None:
            await self._writing
        self._close_file()

    async def _write_all(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting, []
                try:
                    await asyncio.to_thread(self._append, b"".join(line for line, _ in batch))
                except OSError as error:
                    failure = Undelivered(f"{self._path} cannot be written: {error.strerror}")
                    _settle(batch, failure)
                else:
                    _settle(batch, None)
        finally:
            self._writing = None

    def _append(self, lines: bytes) -> None:
        """Anew where the file was moved away; on a line of its own where the last one was left unfinished."""
        descriptor = self._opened()
        if self._torn and _ends_within_a_line(descriptor):
            lines = b"\n" + lines
        self._torn = True
        written = os.write(descriptor, lines)
        while written < len(lines):
            written += os.write(descriptor, lines[written:])
        if self._fsync:
            os.fsync(descriptor)
        self._torn = False

    def _opened(self) -> int:
        if self._descriptor is not None and _is_at(self._descriptor, self._path):
            return self._descriptor
        self._close_file()
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self._descriptor = os.open(self._path, flags, 0o640)
        self._torn = True
        return self._descriptor

    def _close_file(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


def _inside(directory: Path, target: str) -> Path:
    """Below the directory of the dispatcher: whoever may subscribe may not write everywhere that it can."""
    root = directory.resolve()
    path = (root / target).resolve()
    if path == root or not path.is_relative_to(root):
        raise ConfigurationError(
            f"{target} is not below {root}", hint="Set HOLDFAST_OUTBOX_DIRECTORY where the dispatcher runs."
        )
    return path


def _settle(batch: list[tuple[bytes, "asyncio.Future[None]"]], failure: Undelivered | None) -> None:
    for _, written in batch:
        if written.done():  # whoever waited for it has given up
            continue
        if failure is None:
            written.set_result(None)
        else:
            written.set_exception(Undelivered(str(failure)))


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except OSError:
        return False


def _ends_within_a_line(descriptor: int) -> bool:
    size = os.fstat(descriptor).st_size
    return size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
