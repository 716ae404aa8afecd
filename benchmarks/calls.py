"""What a call of claim and of finish costs the server: CPU of its process, as Linux counts it.

The fixed cost is what a call costs beside its tasks: a line through calls with 20 and 200 tasks.
"""

import random
import statistics
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.contract import Contract

SIZES = {1: 200, 20: 100, 200: 20}
"""Tasks per call, and how many calls in a round."""
ROUNDS = 7
SMALL, LARGE = 20, 200


@dataclass
class Costs:
    """Microseconds per call in each round, by the number of tasks."""

    claim: dict[int, list[float]] = field(default_factory=lambda: {size: [] for size in SIZES})
    finish: dict[int, list[float]] = field(default_factory=lambda: {size: [] for size in SIZES})

    def lines(self) -> Iterator[str]:
        for name, by_size in (("claim", self.claim), ("finish", self.finish)):
            medians = ", ".join(
                f"{size:,} tasks {statistics.median(found):,.0f}" for size, found in by_size.items()
            )
            fixed = statistics.median(
                (LARGE * small - SMALL * large) / (LARGE - SMALL)
                for small, large in zip(by_size[SMALL], by_size[LARGE], strict=True)
            )
            yield f"{name:<8}{medians}; beside its tasks {fixed:,.0f}"


def tasks(rounds: int = ROUNDS) -> int:
    """How many have to wait before the measurement. There is one more round, to warm up."""
    return (rounds + 1) * sum(size * calls for size, calls in SIZES.items())


def measure(side: Contract, rounds: int = ROUNDS) -> Costs:
    """Sizes come in another order in each round, so that what else the machine does hits all of them."""
    found = Costs()
    for _ in range(rounds + 1):
        for size in random.sample(list(SIZES), len(SIZES)):
            claim, finish = _round(side, size, SIZES[size])
            found.claim[size].append(claim)
            found.finish[size].append(finish)
    for by_size in (found.claim, found.finish):
        for each in by_size.values():
            del each[0]
    return found


def _round(side: Contract, size: int, calls: int) -> tuple[float, float]:
    server = Path(f"/proc/{side.connection.info.backend_pid}/schedstat")

    def nanoseconds() -> int:
        return int(server.read_text().split()[0])

    claiming = finishing = 0
    for _ in range(calls):
        began = nanoseconds()
        claimed = side.claim(size)
        between = nanoseconds()
        assert len(claimed) == size, f"{len(claimed)} of {size} tasks were claimed"
        side.finish(claimed)
        claiming += between - began
        finishing += nanoseconds() - between
    return claiming / calls / 1000, finishing / calls / 1000
