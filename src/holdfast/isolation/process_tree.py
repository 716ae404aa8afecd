"""Process trees: find all descendants of a process, measure them, tie them to their parent, kill them.

Standard library only, because the spawner runs without site-packages.
"""

import ctypes
import os
import signal
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38
_LANDLOCK_CREATE_RULESET = 444
_LANDLOCK_RESTRICT_SELF = 446
_LANDLOCK_VERSION = 1
_LANDLOCK_SCOPE_SIGNAL = 2
_SCOPES_SIGNALS = 6
"""The version of Landlock, that of Linux 6.12, from which it confines signals."""
_PROC = Path("/proc")
PAGE = os.sysconf("SC_PAGE_SIZE")

IS_LINUX = sys.platform == "linux"
LISTS_CHILDREN = IS_LINUX and (_PROC / f"self/task/{os.getpid()}/children").exists()


def weaknesses(user: str | None = None) -> list[str]:
    """What this platform does not enforce for runs with this account, for the log."""
    if not IS_LINUX:
        return [
            "a process that leaves its group survives the end of its run",
            "limits of memory and of the number of processes are not enforced",
            "a spawner that is killed leaves its runs behind",
        ]
    found = []
    if not LISTS_CHILDREN:
        found.append("process trees are found by reading all of /proc, less often: limits are enforced late")
    if user is not None and not can_enclose():
        found.append(
            "runs of one account can signal and trace one another: this needs Linux 6.12 with Landlock"
        )
    return found


def adopt_orphans() -> None:
    """Become the parent of every descendant whose parent ends, so that none is lost."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def signal_when_orphaned(number: int) -> None:
    """Get this signal when the thread that started this process ends. A change of the user undoes this."""
    _prctl(_PR_SET_PDEATHSIG, number)


def refuse_new_privileges() -> None:
    """From now on, no program gains rights by its set-user-ID bit."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def can_enclose() -> bool:
    """Whether `enclose` has an effect on this system."""
    return IS_LINUX and _syscall(_LANDLOCK_CREATE_RULESET, None, 0, _LANDLOCK_VERSION) >= _SCOPES_SIGNALS


def enclose() -> None:
    """From now on, this process and its descendants can signal and trace only one another, if it can be had.

    It needs `refuse_new_privileges` before. Others can still signal them, such as the spawner.
    """
    if not can_enclose():
        return
    scope = struct.pack("QQQ", 0, 0, _LANDLOCK_SCOPE_SIGNAL)  # files and network stay as they are
    rules = _syscall(_LANDLOCK_CREATE_RULESET, scope, len(scope), 0)
    if rules >= 0:
        _syscall(_LANDLOCK_RESTRICT_SELF, rules, 0)
        os.close(rules)


def children_of(pid: int) -> list[int]:
    if LISTS_CHILDREN:
        return [int(child) for task in _entries(f"{pid}/task") for child in _children_of_thread(pid, task)]
    return [child for child, parent in _parents().items() if parent == pid]


def family_of(pid: int) -> list[int]:
    """All descendants, without the process itself."""
    if LISTS_CHILDREN:
        found, waiting = [], children_of(pid)
        while waiting:
            child = waiting.pop()
            found.append(child)
            waiting += children_of(child)
        return found
    return _family_among(pid, _parents())


def memory_of(pid: int) -> int:
    """Resident bytes; 0 for a process that is gone."""
    pages = _words(f"{pid}/statm")
    return int(pages[1]) * PAGE if len(pages) > 1 else 0


def is_dead(pid: int) -> bool:
    """Whether it is gone, or a zombie."""
    try:
        return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except (OSError, IndexError):
        return True


def writable_memory() -> int:
    """Bytes of private memory that this process has allocated, as RLIMIT_DATA counts them."""
    pages = _words("self/statm")
    return int(pages[5]) * PAGE if len(pages) > 5 else 0  # noqa: PLR2004 - a position in the line


def processes_marked(mark: str) -> Iterator[int]:
    """The processes that were started with this variable, as far as their environment can be read."""
    wanted = mark.encode()
    for pid in _pids():
        try:
            if wanted in (_PROC / str(pid) / "environ").read_bytes().split(b"\0"):
                yield pid
        except OSError:
            continue


def send(pid: int, number: int) -> None:
    """Send a signal to a process, if it is still there."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return


def send_group(pid: int, number: int) -> None:
    """Send a signal to the group that this process leads."""
    try:
        os.killpg(pid, number)
    except (ProcessLookupError, PermissionError):
        return


def kill_family(pid: int) -> None:
    """Kill a process and its descendants. All are stopped first, so that none forks meanwhile."""
    stopped: set[int] = set()
    while fresh := [one for one in [pid, *family_of(pid)] if one not in stopped]:
        for one in fresh:
            send(one, signal.SIGSTOP)
        stopped.update(fresh)
    send_group(pid, signal.SIGKILL)
    for one in stopped:
        send(one, signal.SIGKILL)


def _prctl(option: int, value: int) -> None:
    if IS_LINUX:
        ctypes.CDLL(None).prctl(option, ctypes.c_ulong(value), 0, 0, 0)


def _syscall(number: int, *arguments: bytes | int | None) -> int:
    """Landlock has no functions in the C library. Its numbers are the same on every architecture."""
    given = [ctypes.c_long(one) if isinstance(one, int) else one for one in (number, *arguments)]
    return int(ctypes.CDLL(None).syscall(*given))


def _children_of_thread(pid: int, task: str) -> list[str]:
    return _words(f"{pid}/task/{task}/children")


def _words(path: str) -> list[str]:
    try:
        return (_PROC / path).read_text().split()
    except OSError:
        return []


def _entries(path: str) -> list[str]:
    try:
        return os.listdir(_PROC / path)  # noqa: PTH208 - only names are needed, many times a second
    except OSError:
        return []


def _pids() -> list[int]:
    return [int(name) for name in _entries("") if name.isdigit()]


def _parents() -> dict[int, int]:
    found = {}
    for pid in _pids():
        try:
            # The name is in parentheses, and may contain some itself.
            found[pid] = int((_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            continue
    return found


def _family_among(pid: int, parents: dict[int, int]) -> list[int]:
    found, waiting = [], [pid]
    while waiting:
        parent = waiting.pop()
        children = [one for one, above in parents.items() if above == parent]
        found += children
        waiting += children
    return found
