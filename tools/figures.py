"""The figures in README.md, from the pages that the benchmarks and trials write.

Run it after `make bench-peers`, `make torture` or `make planted`; a test compares the README with the pages.
"""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
PEERS = ("graphile-worker", "pgqueuer", "procrastinate")
_BLOCK = re.compile(r"(?<=<!-- figures -->\n).*?(?=<!-- end of figures -->)", re.DOTALL)


def figures(docs: Path) -> str:
    """The table of the README."""
    performance = "[performance](docs/performance.md)"
    reliability = "[reliability](docs/reliability.md)"
    speed = _peers((docs / "performance.md").read_text(encoding="utf-8"))
    proof = (docs / "reliability.md").read_text(encoding="utf-8")
    drain = "drain, 1 process /s"
    beside = ", ".join(f"{name} {speed[name][drain]}" for name in PEERS if name in speed)
    start = next(name for name in speed["holdfast"] if name.startswith("commit → start"))
    p50, _, p99 = speed["holdfast"][start].split(" / ")
    log = next(name for name in speed["holdfast"] if name.startswith("WAL per job"))
    enqueued, ran = speed["holdfast"][log].split(" + ")
    trials = _found(r"Last run: (?P<at>\S+) .*? (?P<trials>\d+) trials", proof)
    bugs = _found(r"one at a time: (?P<caught>\d+) of (?P<all>\d+) were caught", proof)
    rows = [
        ("Tasks a second through one worker process", f"{speed['holdfast'][drain]} ({beside})", performance),
        ("Tasks a second through two", speed["holdfast"]["drain, 2 processes /s"], performance),
        ("From the commit to the start of the handler", f"{p50} ms median, {p99} ms p99", performance),
        ("Write-ahead log per task", f"{enqueued} bytes to enqueue, {ran} bytes to run", performance),
        (
            "Trials that kill workers, servers and connections",
            f"{trials[1]}, last run {trials[0]}",
            reliability,
        ),
        (
            "Bugs planted in the code, one at a time",
            f"{bugs[0]} of {bugs[1]} caught by the tests",
            reliability,
        ),
    ]
    lines = ["| measured | figure | source |", "|---|---|---|"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows), ""])


def _peers(page: str) -> dict[str, dict[str, str]]:
    """The table of the peers: by name, each figure by the head of its column."""
    table = page.partition("## Holdfast and its peers")[2].partition("\n## ")[0]
    head, _, *rows = [line.strip("|").split("|") for line in table.splitlines() if line.startswith("|")]
    names = [name.strip() for name in head]
    return {
        cells[0].strip(): dict(zip(names, (cell.strip() for cell in cells), strict=True))
        for cells in rows
        if len(cells) == len(names)
    }


def _found(pattern: str, text: str) -> tuple[str, ...]:
    match = re.search(pattern, text)
    if match is None:
        raise ValueError(f"the page no longer has {pattern!r}")
    return match.groups()


def written(readme: str) -> str:
    """What the README says now."""
    match = _BLOCK.search(readme)
    return match[0] if match else ""


if __name__ == "__main__":
    table = figures(ROOT / "docs")
    README.write_text(_BLOCK.sub(lambda _: table, README.read_text(encoding="utf-8")), encoding="utf-8")
