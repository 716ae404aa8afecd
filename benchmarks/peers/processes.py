"""What processes cost, as Linux counts it."""

import os
from pathlib import Path

TICK = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


def tree(root: int) -> list[int]:
    """The process and all that it started, as far as they live."""
    found, waiting = [], [root]
    while waiting:
        process = waiting.pop()
        found.append(process)
        waiting += _children(process)
    return found


def cpu_seconds(roots: list[int]) -> float:
    """Of the trees, with the children that have ended and been waited for."""
    return sum(_cpu_ticks(process) for root in roots for process in tree(root)) / TICK


def resident_mb(roots: list[int]) -> float:
    return sum(_resident_pages(process) for root in roots for process in tree(root)) * PAGE / 1e6


def _children(process: int) -> list[int]:
    try:
        threads = list(Path(f"/proc/{process}/task").iterdir())
        return [int(child) for thread in threads for child in (thread / "children").read_text().split()]
    except OSError:
        return []


def _cpu_ticks(process: int) -> int:
    try:
        after_name = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return sum(int(ticks) for ticks in after_name[11:15])


def _resident_pages(process: int) -> int:
    try:
        return int(Path(f"/proc/{process}/statm").read_text().split()[1])
    except OSError:
        return 0
