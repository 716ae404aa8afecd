"""The worker's side of its spawner: starts processes and reports how they ended."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import uuid
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast._worker.executor import ExecutorWorker
from holdfast.isolation import process_tree
from holdfast.isolation.spawner import MARK

CLOSE_SECONDS = 10.0
_PASSED_VARIABLES = ("LD_LIBRARY_PATH", "LANG", "LC_ALL")
_ROOT = Path(__file__).parents[2]
_PROGRAM = "import sys; sys.path.append({root!r}); from holdfast.isolation.spawner import main; main()"


class ProcessNotStarted(Exception):
    """A process could not be started; the message says why."""


@dataclass(frozen=True, slots=True)
class ProcessExit:
    """How a process ended. The status is None if the spawner was gone."""

    status: int | None
    why: str | None = None
    cpu: float = 0.0
    memory: int = 0
    left: int = 0

    @property
    def exit_code(self) -> int | None:
        return os.WEXITSTATUS(self.status) if self.status is not None and os.WIFEXITED(self.status) else None

    @property
    def signal(self) -> int | None:
        return os.WTERMSIG(self.status) if self.status is not None and os.WIFSIGNALED(self.status) else None


@dataclass(frozen=True, slots=True)
class Program:
    """A program to start, and its limits."""

    path: str
    arguments: Sequence[str]
    environment: Mapping[str, str]
    directory: str
    limits: Mapping[str, int] = field(default_factory=dict)
    memory: int | None = None
    processes: int | None = None
    user: str | None = None
    umask: int = 0o077


class SpawnedProcess:
    """A process that the spawner has started or is about to start."""

    def __init__(self, spawner: "SpawnerClient", number: int) -> None:
        loop = asyncio.get_running_loop()
        self.pid = 0
        self.exit: asyncio.Future[ProcessExit] = loop.create_future()
        self.started: asyncio.Future[None] = loop.create_future()
        self.started.add_done_callback(_retrieve_exception)
        self._spawner = spawner
        self._number = number

    def watch(self, memory: int | None, processes: int | None) -> None:
        """From now on, kill the process tree when it uses more; None sets no limit."""
        self._spawner.send({"do": "watch", "run": self._number, "memory": memory, "processes": processes})

    def end(self, grace: float) -> None:
        """Ask the process tree to end, and kill what is left after the grace, in seconds."""
        self._spawner.send({"do": "end", "run": self._number, "grace": grace})


class SpawnerClient:
    """Starts the spawner when it is first needed, and again if it has died."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._mark = ""
        self._spawned: dict[int, SpawnedProcess] = {}
        self._last = 0
        self._buffer = bytearray()
        self._orders: deque[tuple[bytes, list[int]]] = deque()
        self._loop = asyncio.get_running_loop()

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    async def start(self, program: Program, descriptors: Sequence[int]) -> SpawnedProcess:
        """Start a program whose descriptors 0, 1, 2 … are these. The caller closes its own ones."""
        self._start_spawner()
        self._last += 1
        spawned = self._spawned[self._last] = SpawnedProcess(self, self._last)
        name, _, value = self._mark.partition("=")
        order = {
            "do": "start",
            "run": self._last,
            "descriptors": len(descriptors),
            "program": program.path,
            "arguments": list(program.arguments),
            "environment": {**program.environment, name: value},
            "directory": program.directory,
            "limits": dict(program.limits),
            "watch": {"memory": program.memory, "processes": program.processes},
            "user": program.user,
            "umask": program.umask,
        }
        # Duplicates, so that the caller may close its descriptors at once.
        self.send(order, [os.dup(descriptor) for descriptor in descriptors])
        try:
            await asyncio.shield(spawned.started)
        except asyncio.CancelledError:
            spawned.end(0)
            raise
        return spawned

    def send(self, order: Mapping[str, Any], descriptors: Sequence[int] = ()) -> None:
        self._orders.append((json.dumps(order).encode() + b"\n", list(descriptors)))
        if len(self._orders) == 1:
            self._write()

    async def close(self) -> None:
        """End the spawner, which ends all that it has started."""
        process, self._process = self._process, None
        if process is None:
            return
        self._disconnect()
        try:
            await asyncio.to_thread(process.wait, CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            await asyncio.to_thread(process.wait)
            _kill_marked(self._mark)
        self._forget("closed")

    def _start_spawner(self) -> None:
        if self._process is not None:
            return
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self._mark = f"{MARK}={uuid.uuid4().hex}"
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _PROGRAM.format(root=str(_ROOT))],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                start_new_session=True,
                env={name: os.environ[name] for name in _PASSED_VARIABLES if name in os.environ},
            )
        ours.setblocking(False)
        self._control = ours
        self._loop.add_reader(ours, self._read)

    def _write(self) -> None:
        control = self._control
        if control is None:
            self._forget_orders()
            return
        try:
            while self._orders:
                written, descriptors = self._orders[0]
                count = socket.send_fds(control, [written], descriptors)
                self._close_all(descriptors)
                if count < len(written):
                    self._orders[0] = (written[count:], [])
                else:
                    self._orders.popleft()
        except BlockingIOError:
            self._loop.add_writer(control, self._write)
        except OSError:
            self._lost()
        else:
            self._loop.remove_writer(control)

    def _read(self) -> None:
        assert self._control is not None  # noqa: S101 - the loop calls this while it is open
        try:
            data = self._control.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._lost()
            return
        self._buffer += data
        while (end := self._buffer.find(b"\n")) >= 0:
            message = json.loads(self._buffer[:end])
            del self._buffer[: end + 1]
            self._receive(message)

    def _receive(self, message: Mapping[str, Any]) -> None:
        spawned = self._spawned.get(message["run"])
        if spawned is None:
            return
        if "pid" in message:
            spawned.pid = message["pid"]
            spawned.started.set_result(None)
            return
        del self._spawned[message["run"]]
        if "refused" in message:
            spawned.started.set_exception(ProcessNotStarted(message["refused"]))
        else:
            spawned.exit.set_result(
                ProcessExit(**{name: message[name] for name in ("status", "why", "cpu", "memory", "left")})
            )

    def _lost(self) -> None:
        """The spawner has died. Kill what it had started."""
        process, self._process = self._process, None
        self._disconnect()
        if process is not None:
            process.kill()
            process.wait()
        _kill_marked(self._mark)
        self._forget("spawner_died")

    def _forget(self, why: str) -> None:
        gone, self._spawned = self._spawned, {}
        for spawned in gone.values():
            if not spawned.started.done():
                spawned.started.set_exception(ProcessNotStarted("the spawner of this worker has died"))
            if not spawned.exit.done():
                spawned.exit.set_result(ProcessExit(None, why))

    def _disconnect(self) -> None:
        control, self._control = self._control, None
        self._buffer.clear()
        self._forget_orders()
        if control is not None:
            self._loop.remove_reader(control)
            self._loop.remove_writer(control)
            control.close()

    def _forget_orders(self) -> None:
        while self._orders:
            self._close_all(self._orders.popleft()[1])

    @staticmethod
    def _close_all(descriptors: list[int]) -> None:
        while descriptors:
            os.close(descriptors.pop())


def open_spawner(worker: ExecutorWorker) -> SpawnerClient:
    """For `worker.share`: one spawner is enough for a worker."""
    del worker
    return SpawnerClient()


def _kill_marked(mark: str) -> None:
    if process_tree.IS_LINUX:
        for pid in process_tree.processes_marked(mark):
            process_tree.kill_family(pid)


def _retrieve_exception(future: "asyncio.Future[None]") -> None:
    """Keep asyncio from logging a refusal that no caller waits for any more."""
    with contextlib.suppress(asyncio.CancelledError):
        future.exception()


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
