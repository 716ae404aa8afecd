"""An external program as a run: the payload goes to its stdin, its envelope comes from its stdout."""

import asyncio
import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.executors.envelope import BadEnvelope, read_envelope
from holdfast.executors.run_end import OutputStream, RunBounds, RunEnd, described, judge
from holdfast.executors.spawner_client import (
    ProcessExit,
    ProcessNotStarted,
    Program,
    SpawnedProcess,
    SpawnerClient,
)
from holdfast.resources import Resources

SYSTEM_PATH = os.defpath.strip(":")


@dataclass(frozen=True, slots=True)
class CommandPlan:
    """How to start a command: from the configuration, with what it names looked up."""

    name: str
    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    directory: Path | None
    user: str | None


def find_program(name: str, directory: Path | None) -> str | None:
    """The file to run, or None. `python` is the worker's own; a bare name is looked for in PATH."""
    if name == "python":
        return sys.executable
    if os.sep in name:
        path = (directory or Path()) / Path(name).expanduser()
        return str(path.absolute()) if os.access(path, os.X_OK) and path.is_file() else None
    return shutil.which(name)


def chosen_variables(entries: Iterable[str]) -> dict[str, str]:
    """Only these of ours, and a PATH. An entry is NAME, the beginning of names (AWS_*), or NAME=value."""
    chosen = {"PATH": SYSTEM_PATH}
    for entry in entries:
        name, is_given, value = entry.partition("=")
        if is_given:
            chosen[name] = value
        elif name.endswith("*"):
            chosen |= {found: os.environ[found] for found in os.environ if found.startswith(name[:-1])}
        elif name in os.environ:
            chosen[name] = os.environ[name]
    return chosen


class CommandRun:
    """One run of a program. `stop` ends it before its time."""

    def __init__(self, plan: CommandPlan, bounds: RunBounds, pass_on: Callable[[bytes], None]) -> None:
        self._plan = plan
        self._bounds = bounds
        self._pass_on = pass_on
        self._spawned: SpawnedProcess | None = None
        self._why: str | None = None
        self._printed = 0

    def stop(self, why: str, grace: float) -> None:
        self._why = self._why or why
        if self._spawned is not None:
            self._spawned.end(grace)

    async def run(self, spawner: SpawnerClient, payload: bytes, *, close_stdin: bool = True) -> RunEnd:
        """To its end; nothing of it is left then. With an answer if there was an envelope."""
        path = find_program(self._plan.arguments[0], self._plan.directory)
        if path is None:
            raise ProcessNotStarted(
                f"the program {self._plan.arguments[0]} of command {self._plan.name} is not found"
            )
        with _directory(self._plan) as directory:
            return await self._run(spawner, self._program(path, directory), payload, close_stdin=close_stdin)

    async def _run(
        self, spawner: SpawnerClient, program: Program, payload: bytes, *, close_stdin: bool
    ) -> RunEnd:
        loop = asyncio.get_running_loop()
        pipes = [os.pipe() for _ in range(3)]
        (stdin, given), (stdout, prints), (stderr, complains) = ((r, w) for r, w in pipes)
        theirs = [stdin, prints, complains]
        try:
            spawned = self._spawned = await spawner.start(program, theirs)
        except BaseException:
            for descriptor in (given, stdout, stderr):
                os.close(descriptor)
            raise
        finally:
            for descriptor in theirs:
                os.close(descriptor)
        printed = OutputStream(stdout, self._count, lambda _: None, keep=self._bounds.output)
        complained = OutputStream(stderr, self._count, self._pass_on)
        feeding = _Feeding(given, payload, close=close_stdin)
        timer = None
        if self._why is not None:  # while it was started
            spawned.end(0)
        if self._bounds.timeout is not None:
            timer = loop.call_later(self._bounds.timeout, self.stop, "timeout", self._bounds.grace)
        try:
            exit = await asyncio.shield(spawned.exit)  # noqa: A001 - it is one
            printed.drain()
            complained.drain()
            return self._judged(exit, printed, complained)
        finally:
            if timer is not None:
                timer.cancel()
            feeding.close()
            printed.close()
            complained.close()

    def _judged(self, exit: ProcessExit, printed: OutputStream, complained: OutputStream) -> RunEnd:  # noqa: A002 - it is one
        kind, message = judge(exit, self._why, self._bounds)
        detail = {**described(exit, printed, complained), "left_processes": exit.left}
        if kind != "envelope_missing" or not printed.count:
            return RunEnd(kind, message, detail=detail)
        try:
            return RunEnd(answer=read_envelope(printed.whole), detail=detail)
        except BadEnvelope as error:
            return RunEnd("envelope_malformed", f"what it printed is not an envelope: {error}", detail=detail)

    def _program(self, path: str, directory: str) -> Program:
        limits = self._bounds.resources
        return Program(
            path=path,
            arguments=self._plan.arguments,
            environment=self._plan.environment,
            directory=directory,
            limits={"core": 0, **system_limits(limits, is_alone=self._plan.user is not None)},
            memory=limits.memory,
            processes=limits.processes,
            user=self._plan.user,
        )

    def _count(self, count: int) -> None:
        self._printed += count
        if self._printed > self._bounds.output:
            self.stop("output_limit", 0)


class _Feeding:
    """Writes as fast as the program reads, and no faster."""

    def __init__(self, descriptor: int, payload: bytes, *, close: bool) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor: int | None = descriptor
        self._left = memoryview(payload)
        self._closes = close
        self._loop = asyncio.get_running_loop()
        self._loop.add_writer(descriptor, self._write)

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            self._loop.remove_writer(descriptor)
            os.close(descriptor)

    def _write(self) -> None:
        assert self._descriptor is not None  # noqa: S101 - it can be written to
        try:
            self._left = self._left[os.write(self._descriptor, self._left) :]
        except BlockingIOError:
            return
        except OSError:  # it does not read on, which is its own affair
            self._left = self._left[:0]
        if not self._left:
            if self._closes:
                self.close()
            else:
                self._loop.remove_writer(self._descriptor)


def system_limits(limits: Resources, *, is_alone: bool) -> dict[str, int]:
    """Those that the system keeps. It counts processes by account, so only where the account is not ours."""
    found: dict[str, Any] = {"files": limits.files, "file_size": limits.file_size}
    if limits.cpu is not None:
        found["cpu"] = max(1, round(limits.cpu))
    if limits.memory is not None:
        found["memory"] = limits.memory * 2  # of what was asked for; what is used is watched
    if is_alone:
        found["processes"] = limits.processes
    return {name: int(value) for name, value in found.items() if value is not None}


@contextmanager
def _directory(plan: CommandPlan) -> Iterator[str]:
    """The one that was asked for, or an empty one of its own that is gone with it."""
    if plan.directory is not None:
        yield str(plan.directory)
        return
    made = tempfile.mkdtemp(prefix="holdfast-run-")
    try:
        if plan.user is not None:
            with contextlib.suppress(LookupError):  # the spawner tells that there is no such account
                shutil.chown(made, plan.user)
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)
