"""Django's own tests/tasks, from its source distribution, with our backend in place of Django's.

The counts are in docs/howto/use-django.md, and `pytest -s` prints those of this run.
"""

import fcntl
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path

import pytest

from support.database import Database

pytestmark = [pytest.mark.full, pytest.mark.timeout(590)]

ROOT = Path(__file__).parents[3]
SUITE = Path(__file__).parent / "suite"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "holdfast-tests" / "django"
PAGE = ROOT / "docs" / "howto" / "use-django.md"
ROWS = re.findall(r"^\| (\d[^|]*) \| ([\d.]+) \| (\d+) \| (\d+) \| (\d+) \|$", PAGE.read_text(), re.MULTILINE)
ON_PAGE = {(django, python): tuple(map(int, numbers)) for django, python, *numbers in ROWS}
NATIVE = ("6.0.10", "6.1.3")
BACKPORT_OF = "6.0.10"  # whose tests are for the backport, too

# What the backport and Python 3.11 word differently.
REPLACED = {
    "django.tasks": "django_tasks",
    "InvalidTaskBackend,": "InvalidTaskBackendError,",
    "InvalidTaskBackend)": "InvalidTaskBackendError)",
    "InvalidTask,": "InvalidTaskError,",
    "import InvalidTask\n": "import InvalidTaskError\n",
    "async Tasks.": "async tasks.",
    "without an implementation for abstract method 'enqueue'": "with abstract method enqueue",
}


def python_for_django_6() -> str:
    """A Python that Django 6 accepts: from PATH or pyenv."""
    candidates = [
        *(f"python3.{minor}" for minor in (12, 13, 14)),
        *map(str, sorted((Path.home() / ".pyenv" / "versions").glob("3.1[2-9].*/bin/python"))),
    ]
    for candidate in candidates:
        try:
            version = subprocess.run(
                [candidate, "-c", "import sys, venv; print(sys.version_info >= (3, 12))"],
                capture_output=True,
                text=True,
                check=True,
            )
        except (OSError, subprocess.CalledProcessError):
            continue
        if version.stdout.strip() == "True":
            return candidate
    message = "Django 6 is not tested: Python 3.12 or later is missing"
    if os.environ.get("CI") == "true":
        pytest.fail(message)
    pytest.skip(message)


@contextmanager
def alone() -> Iterator[None]:
    """Processes of xdist share the cache."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def django_tests(version: str) -> Path:
    """The directory `tests` of Django's source distribution."""
    directory = CACHE / f"source-{version}"
    found = directory / f"django-{version}" / "tests"
    if not found.exists():
        directory.mkdir(parents=True, exist_ok=True)
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--ignore-requires-python"]
        source = ["--no-binary", ":all:", "--dest", str(directory), f"django=={version}"]
        subprocess.run([*pip, *source], check=True)
        with tarfile.open(next(directory.glob("*.tar.gz"))) as archive:
            archive.extractall(directory, filter="data")
    return found


def environment(python: str, version: str) -> str:
    """A Python with this Django and this Holdfast."""
    directory = CACHE / f"venv-{version}"
    if not (directory / "complete").exists():
        subprocess.run([python, "-m", "venv", "--clear", str(directory)], check=True)
        pip = [str(directory / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, f"django=={version}", "-e", str(ROOT)], check=True)
        (directory / "complete").touch()
    return str(directory / "bin" / "python")


def counts(python: str, tests: Path, db: Database, **variables: str) -> tuple[int, ...]:
    """Run Django's tests and ours on top of them. Returns passed, skipped and unchanged."""
    ran = subprocess.run(
        [python, "-m", "django", "test", "--noinput", "-v2", "tasks", "django_suite"],
        env={
            **os.environ,
            "DATABASE_URL": db.dsn,
            "DJANGO_SETTINGS_MODULE": "suite_settings",
            "PYTHONPATH": f"{tests}:{SUITE}:{ROOT / 'src'}",
        }
        | variables,
        cwd=SUITE,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]
    found = re.search(r"Found (\d+) test", ran.stdout)
    skipped = re.search(r"OK \(skipped=(\d+)\)", ran.stderr)
    unchanged = re.findall(r"^test_\w+ \(tasks\.", ran.stderr, re.MULTILINE)
    assert found
    left_out = int(skipped[1]) if skipped else 0
    return int(found[1]) - left_out, left_out, len(unchanged)


def assert_on_page(name: str, counted: tuple[int, ...]) -> None:
    passed, skipped, unchanged = counted
    sys.stdout.write(f"Django {name}: {passed} passed, {skipped} skipped, {unchanged} of them unchanged\n")
    [on_page] = [numbers for (django, _), numbers in ON_PAGE.items() if django == name]
    assert counted == on_page


def test_the_page_has_exactly_the_versions_that_are_run() -> None:
    assert {django for django, _ in ON_PAGE} == {*NATIVE, backport_name()}


def backport_name() -> str:
    return f"5.2 with django-tasks {'.'.join(metadata.version('django-tasks').split('.')[:2])}"


@pytest.mark.parametrize("version", NATIVE)
def test_with_django_6(db: Database, version: str) -> None:
    python = python_for_django_6()
    with alone():
        tests, installed = django_tests(version), environment(python, version)
    assert_on_page(version, counts(installed, tests, db))


def test_with_the_backport(db: Database, tmp_path: Path) -> None:
    """On this Python and its Django, with the tests of Django 6.0 under the names of the backport."""
    import django

    if django.VERSION >= (6, 0):
        pytest.skip("this Django needs no backport")
    copied = tmp_path / "tasks"
    copied.mkdir()
    with alone():
        tests = django_tests(BACKPORT_OF)
    for path in (tests / "tasks").glob("*.py"):
        text = path.read_text()
        for native, backport in REPLACED.items():
            text = text.replace(native, backport)
        (copied / path.name).write_text(text)
    assert django.get_version().startswith("5.2.")
    assert_on_page(backport_name(), counts(sys.executable, tmp_path, db, SUITE_APPS="django_tasks"))
