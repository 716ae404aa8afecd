"""An environment of its own for each peer, under .bench/, with pinned versions."""

import json
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from zipfile import ZipFile

from benchmarks.peers.catalog import HOLDFAST, Peer

ROOT = Path(__file__).resolve().parents[2]
HOME = ROOT / ".bench"
ADAPTERS = "benchmarks.peers.adapters"
NODE_WANTED = (22, 18)
NODE_VERSION = "22.23.3"


class Unavailable(Exception):
    """A peer that this machine cannot have, and why."""


def before(commit: str) -> Peer:
    """Holdfast as it was at this commit, with its own adapter, to be measured beside the present one."""
    home = HOME / f"holdfast@{commit}"
    if not _is_complete(home, [commit]):
        asked = ["git", "-C", str(ROOT), "archive", "--format=zip", commit, "src", "benchmarks"]
        found = subprocess.run(asked, capture_output=True, check=False)
        if found.returncode != 0:
            raise SystemExit(f"--before {commit}: {found.stderr.decode().strip()}")
        shutil.rmtree(home, ignore_errors=True)
        with ZipFile(BytesIO(found.stdout)) as archive:
            archive.extractall(home)
        _complete(home, [commit])
    return replace(HOLDFAST, name=f"holdfast@{commit}", root=home)


def command(peer: Peer) -> list[str]:
    """Install what is missing; answer how the peer's adapter is called."""
    match peer.runtime:
        case "own":
            return [sys.executable, "-m", f"{ADAPTERS}.{peer.adapter}"]
        case "python":
            return [str(_virtual_environment(peer) / "bin" / "python"), "-m", f"{ADAPTERS}.{peer.adapter}"]
        case "node":
            _node_project(peer.name, peer.packages)
            return [_node(), str(Path(__file__).parent / "adapters" / f"{peer.adapter}.mjs")]


def _virtual_environment(peer: Peer) -> Path:
    home = HOME / peer.name
    if not _is_complete(home, peer.packages):
        print(f"Installing {', '.join(peer.packages)} into {home.relative_to(ROOT)}", flush=True)
        _run([sys.executable, "-m", "venv", "--clear", str(home)])
        _run([str(home / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check", *peer.packages])
        _complete(home, peer.packages)
    return home


def _node_project(name: str, packages: Sequence[str]) -> Path:
    home = HOME / name
    if not _is_complete(home, packages):
        npm = shutil.which("npm")
        if npm is None:
            raise Unavailable("npm is not installed")
        print(f"Installing {', '.join(packages)} into {home.relative_to(ROOT)}", flush=True)
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        (home / "package.json").write_text(json.dumps({"private": True}))
        _run([npm, "install", "--no-fund", "--no-audit", "--loglevel=error", *packages], cwd=home)
        _complete(home, packages)
    return home


def _node() -> str:
    """The machine's own where it is new enough, else one that npm has."""
    found = shutil.which("node")
    if found is not None and _version(found) >= NODE_WANTED:
        return found
    kind = {"x86_64": "x64", "aarch64": "arm64", "arm64": "arm64"}.get(platform.machine(), platform.machine())
    package = f"node-{platform.system().lower()}-{kind}"
    home = _node_project("node", [f"{package}@{NODE_VERSION}"])
    return str(home / "node_modules" / package / "bin" / "node")


def _version(node: str) -> tuple[int, ...]:
    said = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout
    return tuple(int(number) for number in re.findall(r"\d+", said))


def _run(arguments: list[str], cwd: Path = ROOT) -> None:
    done = subprocess.run(arguments, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        raise Unavailable(said[-1] if said else f"{arguments[0]} ended with {done.returncode}")


def _is_complete(home: Path, packages: Sequence[str]) -> bool:
    stamp = home / ".complete"
    return stamp.exists() and stamp.read_text() == "\n".join(packages)


def _complete(home: Path, packages: Sequence[str]) -> None:
    (home / ".complete").write_text("\n".join(packages))
