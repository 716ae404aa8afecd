"""A copy of the tree, in which one bug at a time is planted and looked for."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from planted import witness
from planted.bug import Bug

_COPIED = ("src", "tests", "docs", "examples", "tools", "pyproject.toml", "README.md")
_LEFT_OUT = shutil.ignore_patterns("__pycache__", ".hypothesis")

# A replacement that is no SQL or no Python any more proves nothing about the tests.
_BROKEN = re.compile(
    r"(?:[\w.]+\.)?(?:SyntaxError|IndentationError|NameError|ImportError|ModuleNotFoundError|AttributeError"
    r"|UndefinedColumn|UndefinedFunction|UndefinedTable|InvalidColumnReference|InvalidFunctionDefinition)\b"
)


@dataclass(frozen=True)
class Finding:
    """What a run of tests came to."""

    seconds: float
    passed: bool
    caught_by: str | None
    told: str
    by_timeout: bool = False


class Field:
    def __init__(self, place: Path, root: Path) -> None:
        self._place = place
        place.mkdir()
        for name in _COPIED:
            source = root / name
            if source.is_dir():
                shutil.copytree(source, place / name, ignore=_LEFT_OUT)
            else:
                shutil.copy(source, place / name)

    @contextmanager
    def planted(self, bug: Bug) -> Iterator[None]:
        path = self._place / bug.path
        right = path.read_text()
        self._put(path, bug.planted(right))
        try:
            yield
        finally:
            self._put(path, right)

    def look(self, tests: Sequence[str], *options: str) -> Finding:
        report = self._place / "report.jsonl"
        report.unlink(missing_ok=True)
        began = time.monotonic()
        ended = subprocess.run(
            [
                *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly"),
                *("-p", witness.__name__, *options, *tests),
            ],
            cwd=self._place,
            env=self._environment(report),
            capture_output=True,
            text=True,
            check=False,
        )
        seconds = time.monotonic() - began
        if ended.returncode == 0:
            return Finding(seconds, True, None, "every test passed")
        told = report.read_text().splitlines() if report.exists() else []
        return judged(seconds, [json.loads(line) for line in told], ended.stdout + ended.stderr)

    def _environment(self, report: Path) -> dict[str, str]:
        ours = os.pathsep.join(str(self._place / name) for name in ("src", "tests"))
        return {**os.environ, "PYTHONPATH": ours, witness.VARIABLE: str(report)}

    def _put(self, path: Path, text: str) -> None:
        path.write_text(text)
        # Within a second and of the same size, Python would take what it compiled before.
        for compiled in path.parent.glob(f"__pycache__/{path.stem}.*"):
            compiled.unlink()


def judged(seconds: float, failed: Sequence[dict[str, str]], output: str) -> Finding:
    """A bug counts as caught if a test ran and said no. What could not even begin has noticed nothing."""
    if not failed:
        return Finding(seconds, False, None, f"pytest did not run\n{output[-4000:]}")
    first = failed[0]
    brief = f"{first['test']} ({first['phase']}): {first['message'].partition(chr(10))[0][:300]}"
    if first["phase"] not in ("call", "teardown") or _BROKEN.match(first["message"]):
        return Finding(seconds, False, None, f"not caught, only broken: {brief}")
    late = first["message"].startswith("Failed: Timeout")
    return Finding(seconds, False, first["test"], f"caught by {brief}", late)
