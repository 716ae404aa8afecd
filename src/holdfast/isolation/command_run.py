"""One run of an external program: the payload goes to its stdin, its envelope comes from its stdout."""

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

from holdfast._worker.envelope import Envelope, MalformedEnvelope, parse_envelope
from holdfast.isolation.run_end import RunBounds, RunEnd, describe_exit, judge
from holdfast.isolation.run_output import OutputStream
from holdfast.isolation.spawner_client import (
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
    """How to start a command, as the configuration says."""

    name: str
    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    directory: Path | None
    user: str | None


def find_program(name: str, directory: Path | None) -> str | None:
    """The file to run, or None. `python` is the worker's own; a name without a slash is looked up in PATH."""
    if name == "python":
        return sys.executable
    if os.sep in name:
        path = (directory or Path()) / Path(name).expanduser()
        return str(path.absolute()) if os.access(path, os.X_OK) and path.is_file() else None
    return shutil.which(name)


def chosen_variables(entries: Iterable[str]) -> dict[str, str]:
    """Only these variables, and a PATH. An entry is NAME, a prefix of names (AWS_*), or NAME=value."""
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
    """One run of a command. `stop` ends it early."""

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

    async def run(
        self, spawner: SpawnerClient, payload: bytes, *, close_stdin: bool = True
    ) -> RunEnd[Envelope]:
        """Run it to its end; no process of it is left then. Raises ProcessNotStarted."""
        path = find_program(self._plan.arguments[0], self._plan.directory)
        if path is None:
            raise ProcessNotStarted(
                f"the program {self._plan.arguments[0]} of command {self._plan.name} is not found"
            )
        with _directory(self._plan) as directory:
            return await self._run(spawner, self._program(path, directory), payload, close_stdin=close_stdin)

    async def _run(
        self, spawner: SpawnerClient, program: Program, payload: bytes, *, close_stdin: bool
    ) -> RunEnd[Envelope]:
        (stdin, feed_end), (stdout_end, stdout), (stderr_end, stderr) = (os.pipe() for _ in range(3))
        theirs = [stdin, stdout, stderr]
        try:
            spawned = self._spawned = await spawner.start(program, theirs)
        except BaseException:
            for descriptor in (feed_end, stdout_end, stderr_end):
                os.close(descriptor)
            raise
        finally:
            for descriptor in theirs:
                os.close(descriptor)
        output = OutputStream(stdout_end, self._count, lambda _: None, keep=self._bounds.output)
        errors = OutputStream(stderr_end, self._count, self._pass_on)
        feeder = _StdinFeeder(feed_end, payload, close=close_stdin)
        timer = self._start_timer()
        if self._why is not None:  # stopped while it was started
            spawned.end(0)
        try:
            exited = await asyncio.shield(spawned.exit)
            output.drain()
            errors.drain()
            return self._end(exited, output, errors)
        finally:
            if timer is not None:
                timer.cancel()
            feeder.close()
            output.close()
            errors.close()

    def _start_timer(self) -> asyncio.TimerHandle | None:
        if self._bounds.timeout is None:
            return None
        loop = asyncio.get_running_loop()
        return loop.call_later(self._bounds.timeout, self.stop, "timeout", self._bounds.grace)

    def _end(self, exited: ProcessExit, output: OutputStream, errors: OutputStream) -> RunEnd[Envelope]:
        kind, message = judge(exited, self._why, self._bounds)
        detail = {**describe_exit(exited, output, errors), "left_processes": exited.left}
        if kind != "envelope_missing" or not output.count:
            return RunEnd(kind, message, detail=detail)
        try:
            return RunEnd(answer=parse_envelope(output.whole), detail=detail)
        except MalformedEnvelope as error:
            return RunEnd("envelope_malformed", f"what it printed is not an envelope: {error}", detail=detail)

    def _program(self, path: str, directory: str) -> Program:
        resources = self._bounds.resources
        return Program(
            path=path,
            arguments=self._plan.arguments,
            environment=self._plan.environment,
            directory=directory,
            limits={"core": 0, **system_limits(resources, has_own_user=self._plan.user is not None)},
            memory=resources.memory,
            processes=resources.processes,
            user=self._plan.user,
        )

    def _count(self, count: int) -> None:
        self._printed += count
        if self._printed > self._bounds.output:
            self.stop("output_limit", 0)


class _StdinFeeder:
    """Writes the payload as fast as the program reads it."""

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
        assert self._descriptor is not None  # noqa: S101 - the loop calls this while it is open
        try:
            self._left = self._left[os.write(self._descriptor, self._left) :]
        except BlockingIOError:
            return
        except OSError:  # the program does not read the rest, which it need not
            self._left = self._left[:0]
        if not self._left:
            if self._closes:
                self.close()
            else:
                self._loop.remove_writer(self._descriptor)


def system_limits(resources: Resources, *, has_own_user: bool) -> dict[str, int]:
    """The limits that the system enforces. It counts processes by user, which needs a user of its own."""
    found: dict[str, Any] = {"files": resources.files, "file_size": resources.file_size}
    if resources.cpu is not None:
        found["cpu"] = max(1, round(resources.cpu))
    if resources.memory is not None:
        found["memory"] = resources.memory * 2  # of allocated memory; the spawner watches the used memory
    if has_own_user:
        found["processes"] = resources.processes
    return {name: int(value) for name, value in found.items() if value is not None}


@contextmanager
def _directory(plan: CommandPlan) -> Iterator[str]:
    """The configured directory, or an empty one that is removed afterwards."""
    if plan.directory is not None:
        yield str(plan.directory)
        return
    made = tempfile.mkdtemp(prefix="holdfast-run-")
    try:
        if plan.user is not None:
            with contextlib.suppress(LookupError):  # the spawner reports an unknown user
                shutil.chown(made, plan.user)
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)
