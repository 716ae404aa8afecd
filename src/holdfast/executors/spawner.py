"""The spawner: a small process of a worker's own that starts its runs, watches and ends them, whole families.

It has one thread, so it may fork and prepare a process before its program begins. It adopts what a run leaves
behind. When its worker is gone, however it went, so is all that the spawner has started. Standard library
only; `spawner_client.py` is the other side.
"""

import array
import contextlib
import fcntl
import json
import os
import pwd
import resource
import select
import signal
import socket
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from holdfast.executors import process_tree

MARK = "HOLDFAST_SPAWNER"
"""In the environment of all that a spawner starts, so that it is found even if the spawner is killed."""

ORPHANED = signal.SIGUSR1
WATCH_SECONDS = 0.05 if process_tree.LISTS_CHILDREN else 0.5
PARENT_SECONDS = 1.0
CLEAR_SECONDS = 5.0
MAX_DESCRIPTORS = 16
FIRST_FREE = 100
NOT_STARTED = 126
MEMORY_UNIT = 1 if sys.platform == "darwin" else 1024

LIMITS = {
    "cpu": resource.RLIMIT_CPU,
    "memory": resource.RLIMIT_DATA,
    "files": resource.RLIMIT_NOFILE,
    "file_size": resource.RLIMIT_FSIZE,
    "core": resource.RLIMIT_CORE,
    "processes": resource.RLIMIT_NPROC,
}


@dataclass(slots=True)
class SpawnedRun:
    """A process that was started, the leader of its own session."""

    name: int
    pid: int
    memory: int | None = None
    processes: int | None = None
    kill_at: float | None = None
    why: str | None = None

    @property
    def is_watched(self) -> bool:
        return self.memory is not None or self.processes is not None


class Spawner:
    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._parent = os.getppid()
        self._runs: dict[int, SpawnedRun] = {}
        self._by_pid: dict[int, SpawnedRun] = {}
        self._heard = bytearray()
        self._descriptors: list[int] = []
        self._wakes, wakes = os.pipe()
        os.set_blocking(self._wakes, False)
        os.set_blocking(wakes, False)
        signal.set_wakeup_fd(wakes)
        for number in (signal.SIGCHLD, ORPHANED):
            signal.signal(number, lambda *_: None)
        # Who ends us is the worker, by going away: a signal to all of a service is meant for it.
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(number, signal.SIG_IGN)
        process_tree.adopt_orphans()
        process_tree.signal_when_orphaned(ORPHANED)

    def serve(self) -> None:
        """Until the worker is gone."""
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        poll.register(self._wakes, select.POLLIN)
        try:
            while os.getppid() == self._parent:
                ready = {descriptor for descriptor, _ in poll.poll(self._patience() * 1000)}
                if self._wakes in ready:
                    os.read(self._wakes, 4096)
                self._reap()
                if self._control.fileno() in ready and not self._listen():
                    return
                self._look_after_runs()
        finally:
            self._end_all()

    def _patience(self) -> float:
        if any(run.is_watched for run in self._runs.values()):
            return WATCH_SECONDS
        due = min((run.kill_at for run in self._runs.values() if run.kill_at is not None), default=None)
        return PARENT_SECONDS if due is None else min(PARENT_SECONDS, max(0.0, due - time.monotonic()))

    def _listen(self) -> bool:
        """False at the end of what the worker has to say."""
        try:
            data, given = _receive(self._control)
        except (ConnectionError, OSError):
            return False
        if not data:
            return False
        self._descriptors += given
        self._heard += data
        while (end := self._heard.find(b"\n")) >= 0:
            order = json.loads(self._heard[:end])
            del self._heard[: end + 1]
            self._obey(order)
        return True

    def _obey(self, order: dict[str, Any]) -> None:
        if order["do"] == "start":
            self._start(order)
            return
        run = self._runs.get(order["run"])
        if run is None:
            return
        if order["do"] == "watch":
            run.memory, run.processes = order["memory"], order["processes"]
        elif order["do"] == "end":
            self._end(run, order["grace"])

    def _start(self, order: dict[str, Any]) -> None:
        count = order["descriptors"]
        given, self._descriptors = self._descriptors[:count], self._descriptors[count:]
        try:
            pid, problem = _fork(order, given)
        except OSError as error:
            pid, problem = 0, str(error)
        finally:
            for descriptor in given:
                os.close(descriptor)
        if problem:
            if pid:
                os.waitpid(pid, 0)
            self._tell(run=order["run"], refused=problem)
            return
        run = SpawnedRun(order["run"], pid, order["watch"]["memory"], order["watch"]["processes"])
        self._runs[run.name] = self._by_pid[pid] = run
        self._tell(run=run.name, pid=pid)

    def _end(self, run: SpawnedRun, grace: float) -> None:
        """Ask the whole family to end; whoever is left at the end of the grace is killed."""
        run.kill_at = time.monotonic() + grace
        if grace > 0:
            family = process_tree.family_of(run.pid)
            process_tree.send_group(run.pid, signal.SIGTERM)
            for pid in family:
                process_tree.send(pid, signal.SIGTERM)
        self._look_after_runs()

    def _look_after_runs(self) -> None:
        now = time.monotonic()
        for run in list(self._runs.values()):
            if run.kill_at is not None and run.kill_at <= now:
                run.kill_at = now + CLEAR_SECONDS  # again, should one have got away
                process_tree.kill_family(run.pid)
            elif run.is_watched:
                self._watch(run)

    def _watch(self, run: SpawnedRun) -> None:
        family = process_tree.family_of(run.pid)
        if run.memory is not None:
            used = process_tree.memory_of(run.pid) + sum(map(process_tree.memory_of, family))
            if used > run.memory:
                self._kill(run, "memory_limit")
        if run.processes is not None and len(family) + 1 > run.processes:
            self._kill(run, "process_limit")

    def _kill(self, run: SpawnedRun, why: str) -> None:
        run.why = run.why or why
        run.memory = run.processes = None
        run.kill_at = time.monotonic() + CLEAR_SECONDS
        process_tree.kill_family(run.pid)

    def _reap(self) -> None:
        """Take note of who has ended, and end what their runs have left behind."""
        ended = []
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status, used = os.wait4(-1, os.WNOHANG)
                if pid == 0:
                    break
                run = self._by_pid.pop(pid, None)
                if run is not None:
                    del self._runs[run.name]
                    ended.append((run, status, used))
        if not ended and all(pid in self._by_pid for pid in process_tree.children_of(os.getpid())):
            return
        if not process_tree.IS_LINUX:  # nobody is adopted: end at least the group
            for run, _, _ in ended:
                process_tree.send_group(run.pid, signal.SIGKILL)
        left = self._clear()
        for run, status, used in ended:
            seconds = used.ru_utime + used.ru_stime
            memory = used.ru_maxrss * MEMORY_UNIT
            self._tell(run=run.name, status=status, why=run.why, cpu=seconds, memory=memory, left=left)

    def _clear(self) -> int:
        """End what was adopted, and say how many lived.

        Whoever belongs to a run that lives is adopted by that, not by us.
        """
        found: set[int] = set()
        give_up = time.monotonic() + CLEAR_SECONDS
        while time.monotonic() < give_up:
            strays = [pid for pid in process_tree.children_of(os.getpid()) if pid not in self._by_pid]
            if not strays:
                break
            for pid in strays:
                if not process_tree.is_dead(pid):
                    found.add(pid)
                    process_tree.kill_family(pid)
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)
            time.sleep(0.001)
        return len(found)

    def _end_all(self) -> None:
        for run in self._by_pid.values():
            process_tree.kill_family(run.pid)
        self._by_pid.clear()
        self._clear()

    def _tell(self, **said: Any) -> None:
        with contextlib.suppress(OSError):  # the worker is gone, which the next look tells
            self._control.sendall(json.dumps(said).encode() + b"\n")


def _receive(control: socket.socket) -> tuple[bytes, list[int]]:
    size = array.array("i").itemsize
    flags = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
    data, ancillary, _, _ = control.recvmsg(65536, socket.CMSG_SPACE(MAX_DESCRIPTORS * size), flags)
    given = array.array("i")
    for level, kind, content in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            given.frombytes(content[: len(content) - len(content) % size])
    return data, list(given)


def _fork(order: dict[str, Any], given: list[int]) -> tuple[int, str]:
    """The new process, and why its program did not start."""
    reads, writes = os.pipe()
    spawner = os.getpid()
    pid = os.fork()
    if pid == 0:
        os.close(reads)
        _become(order, given, writes, spawner)
    os.close(writes)
    with os.fdopen(reads, "rb") as answer:  # closed without a word by the program that begins
        return pid, answer.read().decode(errors="replace")


def _become(order: dict[str, Any], given: list[int], answer: int, spawner: int) -> NoReturn:
    """In the new process. Nothing here may return or leave a trace in the spawner."""
    try:
        os.setsid()
        signal.set_wakeup_fd(-1)
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            with contextlib.suppress(OSError, ValueError):
                signal.signal(number, signal.SIG_DFL)
        answer = _place(given, answer)
        os.umask(order["umask"])
        with contextlib.suppress(OSError):  # when memory runs out, rather we than the worker
            Path("/proc/self/oom_score_adj").write_text("500")
        _limit(order["limits"])
        if order["user"]:
            _change_user(order["user"])
        os.chdir(order["directory"])
        if order["no_new_privileges"]:
            process_tree.refuse_new_privileges()
        process_tree.adopt_orphans()
        process_tree.signal_when_orphaned(signal.SIGKILL)
        if os.getppid() != spawner:
            os._exit(NOT_STARTED)
        os.execve(order["program"], order["arguments"], order["environment"])  # noqa: S606 - no shell, on purpose
    except BaseException as error:  # noqa: BLE001 - whatever it is, the spawner tells it
        os.write(answer, f"{type(error).__name__}: {error}".encode()[:2000])
    finally:
        os._exit(NOT_STARTED)


def _place(given: list[int], answer: int) -> int:
    """Put the descriptors at 0, 1, 2 … by way of numbers that none of them has."""
    aside = [fcntl.fcntl(one, fcntl.F_DUPFD_CLOEXEC, FIRST_FREE) for one in given]
    answer = fcntl.fcntl(answer, fcntl.F_DUPFD_CLOEXEC, FIRST_FREE)
    for number, descriptor in enumerate(aside):
        os.dup2(descriptor, number)
    return answer


def _limit(limits: dict[str, int]) -> None:
    for name, value in limits.items():
        hardest = resource.getrlimit(LIMITS[name])[1]
        # Of CPU time a second more: at the soft limit a signal says why, at the hard one nothing does.
        hard = value + (name == "cpu")
        if hardest != resource.RLIM_INFINITY:
            hard = min(hard, hardest)
        resource.setrlimit(LIMITS[name], (min(value, hard), hard))


def _change_user(name: str) -> None:
    account = pwd.getpwnam(name)
    os.initgroups(name, account.pw_gid)
    os.setgid(account.pw_gid)
    os.setuid(account.pw_uid)


def main() -> None:
    """With the worker's socket as standard input, which is put out of the way of those of runs."""
    descriptor = fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, FIRST_FREE)
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 0)
    os.dup2(nowhere, 1)
    with socket.socket(fileno=descriptor) as control:
        Spawner(control).serve()
    sys.exit(0)
