"""The worker's side of its spawner: processes are asked for here, and how they ended is heard here."""

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

from holdfast.executors import process_tree
from holdfast.executors.spawner import MARK

END_SECONDS = 10.0
_PASSED_VARIABLES = ("LD_LIBRARY_PATH", "LANG", "LC_ALL")
_ROOT = Path(__file__).parents[2]
_PROGRAM = "import sys; sys.path.append({root!r}); from holdfast.executors.spawner import main; main()"


class ProcessNotStarted(Exception):
    """A process could not be started."""


@dataclass(frozen=True, slots=True)
class ProcessExit:
    """How a process ended. Without a status nobody was there to see it."""

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
    """What to start, and within which bounds."""

    path: str
    arguments: Sequence[str]
    environment: Mapping[str, str]
    directory: str
    limits: Mapping[str, int] = field(default_factory=dict)
    memory: int | None = None
    processes: int | None = None
    user: str | None = None
    umask: int = 0o077
    no_new_privileges: bool = True


class SpawnedProcess:
    """A process that the spawner has started, or is about to."""

    def __init__(self, spawner: "SpawnerClient", name: int) -> None:
        loop = asyncio.get_running_loop()
        self.pid = 0
        self.exit: asyncio.Future[ProcessExit] = loop.create_future()
        self.started: asyncio.Future[None] = loop.create_future()
        self.started.add_done_callback(_look_at)
        self._spawner = spawner
        self._name = name

    def watch(self, memory: int | None, processes: int | None) -> None:
        """From now on, kill it with its family when they take more; None for no limit."""
        self._spawner.order({"do": "watch", "run": self._name, "memory": memory, "processes": processes})

    def end(self, grace: float) -> None:
        """Ask it and its family to end; kill who is left after so many seconds."""
        self._spawner.order({"do": "end", "run": self._name, "grace": grace})


class SpawnerClient:
    """Started when it is first needed, and again should it have died."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._mark = ""
        self._spawned: dict[int, SpawnedProcess] = {}
        self._last = 0
        self._heard = bytearray()
        self._orders: deque[tuple[bytes, list[int]]] = deque()
        self._loop = asyncio.get_running_loop()

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    async def start(self, program: Program, descriptors: Sequence[int]) -> SpawnedProcess:
        """Start a program whose descriptors 0, 1, 2 … are these. They stay ours to close."""
        self._ensure()
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
            "no_new_privileges": program.no_new_privileges,
        }
        # Of our own, so that the caller may close its descriptors whenever it likes.
        self.order(order, [os.dup(descriptor) for descriptor in descriptors])
        try:
            await asyncio.shield(spawned.started)
        except asyncio.CancelledError:
            spawned.end(0)
            raise
        return spawned

    def order(self, order: Mapping[str, Any], descriptors: Sequence[int] = ()) -> None:
        self._orders.append((json.dumps(order).encode() + b"\n", list(descriptors)))
        if len(self._orders) == 1:
            self._send()

    async def close(self) -> None:
        """End the spawner, which ends all that it has started."""
        process, self._process = self._process, None
        if process is None:
            return
        self._hang_up()
        try:
            await asyncio.to_thread(process.wait, END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            await asyncio.to_thread(process.wait)
            _kill_marked(self._mark)
        self._forget("closed")

    def _ensure(self) -> None:
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
        self._loop.add_reader(ours, self._listen)

    def _send(self) -> None:
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
            self._loop.add_writer(control, self._send)
        except OSError:
            self._lost()
        else:
            self._loop.remove_writer(control)

    def _listen(self) -> None:
        assert self._control is not None  # noqa: S101 - it is what was heard
        try:
            data = self._control.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._lost()
            return
        self._heard += data
        while (end := self._heard.find(b"\n")) >= 0:
            said = json.loads(self._heard[:end])
            del self._heard[: end + 1]
            self._hear(said)

    def _hear(self, said: Mapping[str, Any]) -> None:
        spawned = self._spawned.get(said["run"])
        if spawned is None:
            return
        if "pid" in said:
            spawned.pid = said["pid"]
            spawned.started.set_result(None)
            return
        del self._spawned[said["run"]]
        if "refused" in said:
            spawned.started.set_exception(ProcessNotStarted(said["refused"]))
        else:
            spawned.exit.set_result(
                ProcessExit(**{name: said[name] for name in ("status", "why", "cpu", "memory", "left")})
            )

    def _lost(self) -> None:
        """The spawner is gone, though nobody asked it to go. What it had started goes, too."""
        process, self._process = self._process, None
        self._hang_up()
        if process is not None:
            process.kill()
            process.wait()
        _kill_marked(self._mark)
        self._forget("spawner_died")

    def _forget(self, why: str) -> None:
        gone, self._spawned = self._spawned, {}
        for spawned in gone.values():
            if not spawned.started.done():
                spawned.started.set_exception(ProcessNotStarted("the spawner of this worker is gone"))
            if not spawned.exit.done():
                spawned.exit.set_result(ProcessExit(None, why))

    def _hang_up(self) -> None:
        control, self._control = self._control, None
        self._heard.clear()
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


def _kill_marked(mark: str) -> None:
    if process_tree.IS_LINUX:
        for pid in process_tree.processes_marked(mark):
            process_tree.kill_family(pid)


def _look_at(future: "asyncio.Future[None]") -> None:
    """So that a refusal that nobody waits for any more is not complained about."""
    with contextlib.suppress(asyncio.CancelledError):
        future.exception()


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
