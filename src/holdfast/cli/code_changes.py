"""Notices changes of the code below a directory, so that a worker can be started again with the new code."""

import os
import sys
import sysconfig
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

MAX_DIRECTORIES = 2000
LOOK_SECONDS = 5.0
"""How often the files are compared without an event: some file systems send none."""
_IGNORED = {"__pycache__", "node_modules", "site-packages"}

Files = dict[str, tuple[int, int]]
"""Paths of files with code, with the time of the last change and the size."""


class CodeChanges:
    """The files with code below some directories.

    watchfiles only tells when to look. What has changed is found by comparing the files, so that a change
    in a directory that was created a moment ago is not missed.
    """

    def __init__(self, below: Path, others: Iterable[str] = ()) -> None:
        """`others` are directories of modules outside of `below`; what is below those is not watched."""
        self._below = below
        self._others = sorted(others)
        self._stop = threading.Event()
        self.directories: list[str] = []
        self.complete = True
        """False if there are too many directories, so that only the first are watched."""
        self._files = self._look()

    def __iter__(self) -> Iterator[list[str]]:
        """Yields the paths that have changed, until `stop` is called."""
        while not self._stop.is_set():
            watched = self.directories
            for _ in self._events(watched):
                if self._stop.is_set():
                    return
                before, self._files = self._files, self._look()
                if before != self._files:
                    yield _difference(before, self._files)
                if self.directories != watched:
                    break

    def stop(self) -> None:
        """End the iteration, which runs in another thread."""
        self._stop.set()

    def _events(self, directories: list[str]) -> Iterator[object]:
        from watchfiles import watch  # noqa: PLC0415 - an extra

        options = {
            "watch_filter": lambda _, path: _is_code(path) or Path(path).is_dir(),
            "debounce": 400,
            "step": 100,
            "stop_event": self._stop,
            "rust_timeout": int(LOOK_SECONDS * 1000),
            "yield_on_timeout": True,
            "raise_interrupt": False,
            "recursive": False,
            "ignore_permission_denied": True,
        }
        yield None  # compare once after each change of the directories
        try:
            yield from watch(*directories, **options)  # type: ignore[arg-type]
        except (OSError, RuntimeError):  # a directory was removed, or the kernel allows no more watches
            self._stop.wait(1.0)

    def _look(self) -> Files:
        found, directories = _walk(self._below)
        self.complete = len(directories) <= MAX_DIRECTORIES
        for directory in self._others:
            found |= _code_in(directory)
        existing = [one for one in self._others if Path(one).is_dir()]
        self.directories = sorted({*directories[:MAX_DIRECTORIES], *existing})
        return found


def _walk(below: Path) -> tuple[Files, list[str]]:
    found: Files = {}
    directories: list[str] = []
    for place, inner, _ in os.walk(below):
        inner[:] = sorted(name for name in inner if _is_watched(place, name))
        directories.append(place)
        if len(directories) > MAX_DIRECTORIES:
            break
        found |= _code_in(place)
    return found, directories


def _is_watched(place: str, name: str) -> bool:
    """Neither hidden directories nor virtual environments: .git, .holdfast, .venv and venv."""
    return not name.startswith(".") and name not in _IGNORED and not Path(place, name, "pyvenv.cfg").exists()


def _is_code(path: str) -> bool:
    return path.endswith((".py", "pyproject.toml"))


def _code_in(directory: str) -> Files:
    found: Files = {}
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                if _is_code(entry.name):
                    stat = entry.stat()
                    found[entry.path] = (stat.st_mtime_ns, stat.st_size)
    except OSError:  # removed or replaced meanwhile, or not ours to read
        return found
    return found


def _difference(before: Files, after: Files) -> list[str]:
    return sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))


def loaded_directories(below: Path) -> list[str]:
    """Directories of imported modules that are neither below this one nor part of Python's installation."""
    paths = sysconfig.get_paths()
    installed = [paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    prefixes = tuple(f"{os.path.realpath(one)}{os.sep}" for one in (*installed, str(below)))
    found = set()
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if not isinstance(file, str) or not file.endswith(".py"):
            continue
        directory = os.path.realpath(Path(file).parent)
        if not f"{directory}{os.sep}".startswith(prefixes):
            found.add(directory)
    return sorted(found)
