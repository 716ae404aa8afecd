"""The spawner: a small process of a worker that starts, watches and ends its runs, whole process trees.

It has one thread, so it may fork and prepare a process before the program starts. It adopts the processes
that a run leaves behind. When its worker is gone, for whatever reason, it ends everything that it has
started. It imports the standard library only; `spawner_client.py` is the worker's side.
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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from holdfast.isolation import process_tree

MARK = "HOLDFAST_SPAWNER"
"""A variable of every process that a spawner starts, so that they are found even if the spawner is killed."""

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
class EndedRun:
    """A run whose process has ended. It is reported when the processes that it has left behind are gone."""

    report: dict[str, Any]
    report_by: float
    strays: set[int] = field(default_factory=set)
    left: int = 0


@dataclass(slots=True)
class SpawnedRun:
    """A process that the spawner started. It leads its own session."""

    number: int
    pid: int
    memory: int | None = None
    processes: int | None = None
    kill_at: float | None = None
    why: str | None = None

    @property
    def is_watched(self) -> bool:
        return self.memory is not None or self.processes is not None


class Spawner:
    """Obeys the orders that come from the worker's socket."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._parent = os.getppid()
        self._runs: dict[int, SpawnedRun] = {}
        self._by_pid: dict[int, SpawnedRun] = {}
        self._ended: list[EndedRun] = []
        self._strays: dict[int, float] = {}
        """Orphans that were adopted and killed, and when to kill them again."""
        self._new_strays: dict[int, bool] = {}
        """Those of the next run that is found to have ended, and whether they were alive."""
        self._buffer = bytearray()
        self._descriptors: list[int] = []
        self._wakes, wakes = os.pipe()
        os.set_blocking(self._wakes, False)
        os.set_blocking(wakes, False)
        signal.set_wakeup_fd(wakes)
        for number in (signal.SIGCHLD, ORPHANED):
            signal.signal(number, lambda *_: None)
        # Only the end of the worker ends the spawner. A signal to a whole service is meant for the worker.
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(number, signal.SIG_IGN)
        process_tree.adopt_orphans()
        process_tree.signal_when_orphaned(ORPHANED)

    def serve(self) -> None:
        """Run until the worker is gone."""
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        poll.register(self._wakes, select.POLLIN)
        try:
            while os.getppid() == self._parent:
                ready = {descriptor for descriptor, _ in poll.poll(self._seconds_to_wait() * 1000)}
                if self._wakes in ready:
                    os.read(self._wakes, 4096)
                self._reap()
                if self._control.fileno() in ready and not self._receive():
                    return
                self._check_runs()
        finally:
            self._end_all()

    def _seconds_to_wait(self) -> float:
        if self._ended or any(run.is_watched for run in self._runs.values()):
            return WATCH_SECONDS
        due = min((run.kill_at for run in self._runs.values() if run.kill_at is not None), default=None)
        return PARENT_SECONDS if due is None else min(PARENT_SECONDS, max(0.0, due - time.monotonic()))

    def _receive(self) -> bool:
        """Obey the orders that have arrived. False if the worker has closed its socket."""
        try:
            data, given = _receive(self._control)
        except (ConnectionError, OSError):
            return False
        if not data:
            return False
        self._descriptors += given
        self._buffer += data
        while (end := self._buffer.find(b"\n")) >= 0:
            order = json.loads(self._buffer[:end])
            del self._buffer[: end + 1]
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
            self._send(run=order["run"], refused=problem)
            return
        run = SpawnedRun(order["run"], pid, order["watch"]["memory"], order["watch"]["processes"])
        self._runs[run.number] = self._by_pid[pid] = run
        self._send(run=run.number, pid=pid)

    def _end(self, run: SpawnedRun, grace: float) -> None:
        """Ask the whole process tree to end, and kill what is left after the grace."""
        run.kill_at = time.monotonic() + grace
        if grace > 0:
            family = process_tree.family_of(run.pid)
            process_tree.send_group(run.pid, signal.SIGTERM)
            for pid in family:
                process_tree.send(pid, signal.SIGTERM)
        self._check_runs()

    def _check_runs(self) -> None:
        now = time.monotonic()
        for run in list(self._runs.values()):
            if run.kill_at is not None and run.kill_at <= now:
                run.kill_at = now + CLEAR_SECONDS  # again, should a process have escaped
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
        """Collect the processes that have ended, and end what their runs have left behind. Never waits."""
        now = time.monotonic()
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status, used = os.wait4(-1, os.WNOHANG)
                if pid == 0:
                    break
                run = self._by_pid.pop(pid, None)
                if run is None:
                    continue
                del self._runs[run.number]
                if not process_tree.IS_LINUX:  # orphans are not adopted: end at least the group
                    process_tree.send_group(run.pid, signal.SIGKILL)
                seconds, memory = used.ru_utime + used.ru_stime, used.ru_maxrss * MEMORY_UNIT
                report = {
                    "run": run.number,
                    "status": status,
                    "why": run.why,
                    "cpu": seconds,
                    "memory": memory,
                }
                self._ended.append(EndedRun(report, now + CLEAR_SECONDS))
        self._clear(now)
        self._report_ended(now)

    def _clear(self, now: float) -> None:
        """Kill the orphans that were adopted. Each run adopts its own: these are of runs that have ended."""
        found = {pid for pid in process_tree.children_of(os.getpid()) if pid not in self._by_pid}
        self._strays = {pid: again for pid, again in self._strays.items() if pid in found}
        for pid in found:
            again = self._strays.get(pid, 0.0)
            if again > now:
                continue
            is_alive = not process_tree.is_dead(pid)
            if not again:
                self._new_strays[pid] = is_alive
            self._strays[pid] = now + CLEAR_SECONDS
            if is_alive:
                process_tree.kill_family(pid)

    def _report_ended(self, now: float) -> None:
        """A run waits for what it has left behind, and not for what earlier runs have."""
        if not self._ended:
            return
        for ended in self._ended:
            ended.strays |= self._new_strays.keys()
            ended.left += sum(self._new_strays.values())
        self._new_strays.clear()
        waiting = []
        for ended in self._ended:
            ended.strays &= self._strays.keys()
            if ended.strays and now < ended.report_by:
                waiting.append(ended)
            else:
                self._send(**ended.report, left=ended.left)
        self._ended = waiting

    def _end_all(self) -> None:
        for run in self._by_pid.values():
            process_tree.kill_family(run.pid)
        deadline = time.monotonic() + CLEAR_SECONDS
        while (now := time.monotonic()) < deadline:
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            self._by_pid.clear()
            self._clear(now)
            if not self._strays:
                return
            time.sleep(0.001)

    def _send(self, **message: Any) -> None:
        with contextlib.suppress(OSError):  # the worker is gone, which the next poll notices
            self._control.sendall(json.dumps(message).encode() + b"\n")


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
    """The new process, and why its program did not start, if it did not."""
    reads, writes = os.pipe()
    spawner = os.getpid()
    pid = os.fork()
    if pid == 0:
        os.close(reads)
        _become(order, given, writes, spawner)
    os.close(writes)
    with os.fdopen(reads, "rb") as answer:  # closed by a successful exec
        return pid, answer.read().decode(errors="replace")


def _become(order: dict[str, Any], given: list[int], answer: int, spawner: int) -> NoReturn:
    """Prepare the new process and execute its program. Runs in the child and never returns."""
    try:
        os.setsid()
        signal.set_wakeup_fd(-1)
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            with contextlib.suppress(OSError, ValueError):
                signal.signal(number, signal.SIG_DFL)
        answer = _place_descriptors(given, answer)
        os.umask(order["umask"])
        with contextlib.suppress(OSError):  # the out-of-memory killer should choose the run, not the worker
            Path("/proc/self/oom_score_adj").write_text("500")
        _set_limits(order["limits"])
        if order["user"]:
            _change_user(order["user"])
        os.chdir(order["directory"])
        process_tree.refuse_new_privileges()
        if order["user"]:
            process_tree.enclose()
        process_tree.adopt_orphans()
        process_tree.signal_when_orphaned(signal.SIGKILL)
        if os.getppid() != spawner:
            os._exit(NOT_STARTED)
        os.execve(order["program"], order["arguments"], order["environment"])  # noqa: S606 - without a shell, on purpose
    except BaseException as error:  # noqa: BLE001 - the spawner reports it
        os.write(answer, f"{type(error).__name__}: {error}".encode()[:2000])
    finally:
        os._exit(NOT_STARTED)


def _place_descriptors(given: list[int], answer: int) -> int:
    """Move the descriptors to 0, 1, 2 … through high numbers, so that none overwrites another."""
    aside = [fcntl.fcntl(one, fcntl.F_DUPFD_CLOEXEC, FIRST_FREE) for one in given]
    answer = fcntl.fcntl(answer, fcntl.F_DUPFD_CLOEXEC, FIRST_FREE)
    for number, descriptor in enumerate(aside):
        os.dup2(descriptor, number)
    return answer


def _set_limits(limits: dict[str, int]) -> None:
    for name, value in limits.items():
        ceiling = resource.getrlimit(LIMITS[name])[1]
        # One second more of CPU time: the soft limit sends SIGXCPU, which tells why; the hard one kills.
        hard = value + (name == "cpu")
        if ceiling != resource.RLIM_INFINITY:
            hard = min(hard, ceiling)
        resource.setrlimit(LIMITS[name], (min(value, hard), hard))


def _change_user(name: str) -> None:
    account = pwd.getpwnam(name)
    os.initgroups(name, account.pw_gid)
    os.setgid(account.pw_gid)
    os.setuid(account.pw_uid)


def main() -> None:
    """Serve the worker's socket, which is standard input; it is moved away from the descriptors of runs."""
    descriptor = fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, FIRST_FREE)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    with socket.socket(fileno=descriptor) as control:
        Spawner(control).serve()
    sys.exit(0)
