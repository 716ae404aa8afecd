"""Events as JSON lines at the end of a file, on disk before they count as delivered.

Whoever may subscribe chooses the name of the file. So the files are in a directory of the dispatcher's own,
and nothing there is written to that is not a file of events.
"""

import asyncio
import os
import re
import stat
from pathlib import Path
from typing import Literal

from holdfast.errors import ConfigurationError
from holdfast.outbox.cloud_event import OutgoingEvent
from holdfast.outbox.sink import Options, Place, Undelivered

MARK = ".holdfast-events"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}\.jsonl", re.ASCII)
_BEGINNING = b'{"specversion"'
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


class FileOptions(Options):
    fsync: Literal["always", "never"] = "always"


class FileSink:
    """While one write is under way, the next lines gather; then all of them go at once."""

    concurrency = 500
    timeout = 15.0

    def __init__(self, place: Place) -> None:
        self._fsync = FileOptions.model_validate(place.options).fsync == "always"
        if not NAME.fullmatch(place.target):
            raise ConfigurationError(
                f"{place.target!r} is not the name of a file of events",
                hint="Give a plain name that ends in .jsonl, such as orders.jsonl.",
            )
        self._name = place.target
        self._directory = place.directory
        _take(self._directory)
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
                    _settle(batch, Undelivered(f"{self._name} cannot be written: {error.strerror or error}"))
                else:
                    _settle(batch, None)
        finally:
            self._writing = None

    def _append(self, lines: bytes) -> None:
        """To a new file where it was moved away; on a new line where the last one was left unfinished."""
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
        if self._descriptor is not None and _is_at(self._descriptor, self._directory / self._name):
            return self._descriptor
        self._close_file()
        inside = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            # Without O_NONBLOCK, to open a pipe would wait for whoever reads it.
            flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
            descriptor = os.open(self._name, flags, 0o640, dir_fd=inside)
        finally:
            os.close(inside)
        try:
            _check_events(descriptor)
        except OSError:
            os.close(descriptor)
            raise
        self._descriptor = descriptor
        self._torn = True
        return descriptor

    def _close_file(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


def _take(directory: Path) -> None:
    """Make the directory, or see that a dispatcher has made it: one with other files in it is not ours."""
    hint = "Give the dispatcher a directory of its own: HOLDFAST_OUTBOX_DIRECTORY."
    try:
        directory.mkdir(mode=0o750, parents=True, exist_ok=True)
        found = directory.lstat()
        if (
            not stat.S_ISDIR(found.st_mode)
            or found.st_uid != os.geteuid()
            or found.st_mode & _WRITABLE_BY_OTHERS
        ):
            raise ConfigurationError(
                f"{directory} is a link, belongs to another user or can be written by others", hint=hint
            )
        there = {path.name for path in directory.iterdir()}
        if there and MARK not in there:
            raise ConfigurationError(f"{directory} has files in it that no dispatcher has written", hint=hint)
        (directory / MARK).touch(mode=0o640)
    except OSError as error:
        raise ConfigurationError(f"{directory} cannot be used: {error.strerror}", hint=hint) from None


def _check_events(descriptor: int) -> None:
    """Raise OSError unless it is a plain file of this user's that has one name and begins with an event."""
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1 or found.st_uid != os.geteuid():
        raise OSError("it is not a plain file of the dispatcher's own")
    beginning = os.pread(descriptor, len(_BEGINNING), 0)
    if beginning and beginning != _BEGINNING[: len(beginning)]:
        raise OSError("it holds something else than events")


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
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except OSError:
        return False


def _ends_within_a_line(descriptor: int) -> bool:
    size = os.fstat(descriptor).st_size
    return size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
