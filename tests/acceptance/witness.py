"""What the handlers did, as they themselves wrote it down outside the database."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from uuid import UUID


@dataclass(frozen=True, slots=True)
class Line:
    task_id: UUID
    attempt: int
    token: int
    pid: int
    phase: str
    at: float
    label: str


class Witness:
    """A file to which every handler appends one line per phase."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()
        self._read_until = 0
        self._started = 0
        self._lock = Lock()

    def lines(self, phase: str | None = None) -> list[Line]:
        written = self.path.read_text()
        assert written == "" or written.endswith("\n"), "a line was torn"
        lines = [_read(line) for line in written.splitlines()]
        return [line for line in lines if phase in (None, line.phase)]

    def count_starts(self) -> int:
        """Reads only what is new, so that it may be asked all the time."""
        with self._lock, self.path.open("rb") as file:
            file.seek(self._read_until)
            new = file.read()
            self._read_until += len(new)
            self._started += new.count(b" started ")
            return self._started

    def starts(self) -> dict[UUID, list[Line]]:
        """Of each task, in the order in which they were written."""
        found: dict[UUID, list[Line]] = defaultdict(list)
        for line in self.lines("started"):
            found[line.task_id].append(line)
        return found


def _read(line: str) -> Line:
    task_id, attempt, token, pid, phase, at, label = line.split(" ", 6)
    return Line(UUID(task_id), int(attempt), int(token), int(pid), phase, float(at), label)


def most_at_once(
    lines: Sequence[Line],
    groups: Callable[[Line], Iterable[str]],
    killed: Mapping[int, float],
    crashes: Sequence[tuple[float, float]] = (),
) -> dict[str, int]:
    """How many handlers ran at the same time, for each group that a line belongs to.

    A handler whose process was `killed` ran until then. A server that crashes may forget claims that were not
    on disk, so what ran then counts only until the crash, and what started before the server was back not at
    all: it was claimed before.
    """
    ends = {(line.task_id, line.token): line.at for line in lines if line.phase in ("ended", "stopped")}
    moments: dict[str, list[tuple[float, int]]] = defaultdict(list)
    for line in lines:
        if line.phase == "started" and not any(crash <= line.at <= back for crash, back in crashes):
            last = ends.get((line.task_id, line.token)) or killed[line.pid]
            until = min([last, *(crash for crash, _ in crashes if crash > line.at)])
            for group in groups(line):
                moments[group] += [(line.at, 1), (until, -1)]
    most = {}
    for group, changes in moments.items():
        running = most[group] = 0
        for _, change in sorted(changes):
            running += change
            most[group] = max(most[group], running)
    return most
