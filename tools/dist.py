"""make dist: build the wheel and the source archive twice, compare, and write the bill of materials."""

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import sbom

ROOT = Path(__file__).parents[1]
BEFORE_ZIP = 315532800
"""The first second of 1980: a wheel cannot hold an earlier one."""


def epoch() -> int:
    """SOURCE_DATE_EPOCH, else the time of the last commit."""
    if given := os.environ.get("SOURCE_DATE_EPOCH"):
        return int(given)
    told = subprocess.run(
        ["env", "git", "log", "-1", "--format=%ct"],  # noqa: S607 - from PATH, if it is there
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return int(told.stdout) if told.returncode == 0 and told.stdout.strip() else BEFORE_ZIP


def build(source: Path, target: Path, when: int) -> dict[str, str]:
    """Name and SHA-256 of each file that was made."""
    built = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--directory", target],
        cwd=source,
        env={**os.environ, "SOURCE_DATE_EPOCH": str(when)},
        capture_output=True,
        text=True,
        check=False,
    )
    if built.returncode != 0:
        raise SystemExit(built.stdout + built.stderr)
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(target.iterdir())}


def unpack(archive: Path, target: Path) -> None:
    """As `shutil.unpack_archive` does with a filter, which Python before 3.11.4 does not take."""
    with tarfile.open(archive) as opened:
        if hasattr(tarfile, "data_filter"):
            opened.extraction_filter = tarfile.data_filter
        opened.extractall(target)  # noqa: S202 - the archive was built here


def build_twice(target: Path) -> dict[str, str]:
    """The second time from the first time's source archive, elsewhere and an hour later by its files."""
    when = epoch()
    with tempfile.TemporaryDirectory() as directory:
        first, second = Path(directory, "first"), Path(directory, "second")
        made = build(ROOT, first, when)
        [archive] = first.glob("*.tar.gz")
        unpack(archive, Path(directory))
        again = build(Path(directory, archive.name.removesuffix(".tar.gz")), second, when)
        if made != again:
            raise SystemExit(f"not reproducible:\n{made}\n{again}")
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(first, target)
    bill = target / f"{archive.name.removesuffix('.tar.gz')}.cdx.json"
    sbom.write(ROOT, when, bill)
    return made | {bill.name: hashlib.sha256(bill.read_bytes()).hexdigest()}


if __name__ == "__main__":
    for name, digest in build_twice(ROOT / "dist").items():
        print(f"{digest}  dist/{name}")
