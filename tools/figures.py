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
    """The sentences of the README about speed and reliability."""
    speed = _peers((docs / "performance.md").read_text(encoding="utf-8"))
    proof = (docs / "reliability.md").read_text(encoding="utf-8")
    drain = "drain, 1 process /s"
    beside = ", ".join(f"{name} {speed[name][drain]}" for name in PEERS if name in speed)
    start = next(name for name in speed["holdfast"] if name.startswith("commit → start"))
    p50, _, p99 = speed["holdfast"][start].split(" / ")
    trials = _found(r"Last run: (?P<at>\S+) .*? (?P<trials>\d+) trials", proof)
    bugs = _found(r"one at a time: (?P<caught>\d+) of (?P<all>\d+) were caught", proof)
    return f"""\
- [Performance](docs/performance.md): on two cores, one worker process runs {speed["holdfast"][drain]} empty
  tasks per second ({beside}), and starts a handler
  {p50} ms after the commit (p99 {p99} ms).
- [Reliability](docs/reliability.md): {trials[1]} trials kill workers, servers and connections and compare
  what clients were told with what is stored (last run {trials[0]}); the tests caught {bugs[0]} of {bugs[1]}
  planted bugs.
"""


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
    sentences = figures(ROOT / "docs")
    README.write_text(_BLOCK.sub(lambda _: sentences, README.read_text(encoding="utf-8")), encoding="utf-8")
