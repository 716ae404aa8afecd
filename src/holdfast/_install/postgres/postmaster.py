"""Finds the running server through its postmaster.pid."""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from holdfast._install.postgres.account import ServerAccount

# No system assigns this process id, so PostgreSQL considers the process gone.
_DEAD_PID = 2**31 - 2

_PID_LINE, _SOCKET_LINE = 0, 4


@dataclass(frozen=True)
class Postmaster:
    pid: int
    socket_directory: Path | None


def find_postmaster(data: Path) -> Postmaster | None:
    """The running server of a data directory. Ignores a file left behind by a crash."""
    lines = _read(data / "postmaster.pid")
    if not lines or not _is_server_of(int(lines[_PID_LINE]), data):
        return None
    socket = lines[_SOCKET_LINE] if len(lines) > _SOCKET_LINE else ""
    return Postmaster(int(lines[_PID_LINE]), Path(socket) if socket else None)


def disown_stale_files(data: Path, socket_directory: Path, account: ServerAccount) -> None:
    """Replace the process id of a dead server, which another process may have by now.

    PostgreSQL would mistake that process for a server and refuse to start. The rest of each file stays:
    PostgreSQL uses it to find out whether backends of the dead server still use its shared memory.
    """
    for file in [data / "postmaster.pid", *socket_directory.glob(".s.PGSQL.*.lock")]:
        lines = _read(file)
        if lines and not _is_server_of(int(lines[_PID_LINE]), data):
            account.write(file, "\n".join([str(_DEAD_PID), *lines[1:], ""]))


def _read(file: Path) -> list[str]:
    try:
        lines = file.read_text().splitlines()
    except FileNotFoundError:
        return []
    return lines if lines and lines[_PID_LINE].strip().isdigit() else []


def _is_server_of(pid: int, data: Path) -> bool:
    return os.fsencode(data) in _command_line(pid)


def _command_line(pid: int) -> bytes:
    if Path("/proc/self/cmdline").exists():
        try:
            return Path(f"/proc/{pid}/cmdline").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            return b""
    ps = ["ps", "-ww", "-o", "command=", "-p", str(pid)]  # macOS has no /proc
    return subprocess.run(ps, capture_output=True, check=False).stdout
