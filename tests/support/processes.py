"""The processes of this machine, for tests that check that nothing is left running."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from holdfast.isolation.spawner import MARK


def processes() -> Iterator[tuple[int, int, str]]:
    """Process id, parent and command line of every process that is not a zombie. Some systems have no ps."""
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            state, parent = (place / "stat").read_text(errors="replace").rpartition(")")[2].split()[:2]
            if state != "Z":
                yield (
                    int(place.name),
                    int(parent),
                    (place / "cmdline").read_text(errors="replace").replace("\0", " "),
                )


def descendants(pid: int) -> set[int]:
    children: dict[int, set[int]] = {}
    for child, parent, _ in processes():
        children.setdefault(parent, set()).add(child)
    found: set[int] = set()
    new = {pid}
    while new := {child for one in new for child in children.get(one, ())} - found:
        found |= new
    return found


def is_ours(pid: int) -> bool:
    """Whether a worker has started it for its tasks."""
    try:
        return MARK.encode() in Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False
