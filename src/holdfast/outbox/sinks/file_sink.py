"""Appends events as JSON lines to a file. An event counts as delivered when it is on disk.

Subscribers choose the name of the file. So all files are in a directory that belongs to the dispatcher, and
the sink writes only to files of events.
"""

import asyncio
import os
import re
import stat
from pathlib import Path
from typing import Literal

from holdfast.errors import ConfigurationError
from holdfast.outbox.cloud_event import OutgoingEvent
from holdfast.outbox.sink import SinkConfig, SinkOptions, Undelivered

MARK = ".holdfast-events"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}\.jsonl", re.ASCII)
_EVENT_START = b'{"specversion"'
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


class FileOptions(SinkOptions):
    fsync: Literal["always", "never"] = "always"


class FileSink:
    """Lines that arrive during a write form the next batch."""

    concurrency = 500
    timeout = 15.0

    def __init__(self, config: SinkConfig) -> None:
        self._fsync = FileOptions.model_validate(config.options).fsync == "always"
        if not NAME.fullmatch(config.target):
            raise ConfigurationError(
                f"{config.target!r} is not a valid file name",
                hint="Use a plain name that ends in .jsonl, such as orders.jsonl.",
            )
        self._name = config.target
        self._directory = config.directory
        _claim_directory(self._directory)
        self._descriptor: int | None = None
        self._may_be_torn = True
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
        """Append to the file. Create it again if it was moved, and end an unfinished line first."""
        descriptor = self._opened()
        if self._may_be_torn and _ends_within_line(descriptor):
            lines = b"\n" + lines
        self._may_be_torn = True
        written = os.write(descriptor, lines)
        while written < len(lines):
            written += os.write(descriptor, lines[written:])
        if self._fsync:
            os.fsync(descriptor)
        self._may_be_torn = False

    def _opened(self) -> int:
        if self._descriptor is not None and _is_same_file(self._descriptor, self._directory / self._name):
            return self._descriptor
        self._close_file()
        inside = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            # Without O_NONBLOCK, opening a pipe would wait for a reader.
            flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
            descriptor = os.open(self._name, flags, 0o640, dir_fd=inside)
        finally:
            os.close(inside)
        try:
            _check_event_file(descriptor)
        except OSError:
            os.close(descriptor)
            raise
        self._descriptor = descriptor
        self._may_be_torn = True
        return descriptor

    def _close_file(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


def _claim_directory(directory: Path) -> None:
    """Create the directory, or check that a dispatcher created it: it must not hold other files."""
    hint = "Set HOLDFAST_OUTBOX_DIRECTORY to a directory that only the dispatcher uses."
    try:
        directory.mkdir(mode=0o750, parents=True, exist_ok=True)
        found = directory.lstat()
        if (
            not stat.S_ISDIR(found.st_mode)
            or found.st_uid != os.geteuid()
            or found.st_mode & _WRITABLE_BY_OTHERS
        ):
            raise ConfigurationError(
                f"{directory} is a symbolic link, belongs to another user or is writable by others", hint=hint
            )
        there = {path.name for path in directory.iterdir()}
        if there and MARK not in there:
            raise ConfigurationError(f"{directory} contains files that no dispatcher has written", hint=hint)
        (directory / MARK).touch(mode=0o640)
    except OSError as error:
        raise ConfigurationError(f"{directory} cannot be used: {error.strerror}", hint=hint) from None


def _check_event_file(descriptor: int) -> None:
    """Raise OSError unless it is a regular file of this user, has one link and begins with an event."""
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1 or found.st_uid != os.geteuid():
        raise OSError("it is not a regular file of the dispatcher")
    start = os.pread(descriptor, len(_EVENT_START), 0)
    if start and start != _EVENT_START[: len(start)]:
        raise OSError("it contains something other than events")


def _settle(batch: list[tuple[bytes, "asyncio.Future[None]"]], failure: Undelivered | None) -> None:
    for _, written in batch:
        if written.done():  # the sender timed out
            continue
        if failure is None:
            written.set_result(None)
        else:
            written.set_exception(Undelivered(str(failure)))


def _is_same_file(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except OSError:
        return False


def _ends_within_line(descriptor: int) -> bool:
    size = os.fstat(descriptor).st_size
    return size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
