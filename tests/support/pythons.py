"""The Pythons of this machine that Holdfast supports: the oldest one of each minor version."""

import os
import re
import subprocess
import sys
from pathlib import Path

OLDEST = (3, 11)

Version = tuple[int, int, int]


def pythons() -> dict[str, str]:
    """Version and path of each, from PATH, from pyenv, and the one that runs this."""
    found: dict[tuple[int, int], tuple[Version, str]] = {}
    for program in sorted(_candidates()):
        version = _version(program)
        if version and version[:2] >= OLDEST:
            found[version[:2]] = min(found.get(version[:2], (version, program)), (version, program))
    return {".".join(map(str, version)): program for version, program in sorted(found.values())}


def _candidates() -> set[str]:
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    directories = [Path(name) for name in os.get_exec_path() if Path(name).is_dir()]
    directories += root.glob("versions/*/bin")
    files = (path for directory in directories for path in directory.iterdir())
    named = (str(path) for path in files if re.fullmatch(r"python3\.\d+", path.name))
    return {getattr(sys, "_base_executable", sys.executable), *named}


def _version(program: str) -> Version | None:
    """None for one that does not start, as pyenv's stand-ins do not, or that cannot create environments."""
    asked = subprocess.run(
        [program, "-c", "import ensurepip, sys; print(*sys.version_info[:3])"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    if asked.returncode != 0:
        return None
    major, minor, patch = map(int, asked.stdout.split())
    return major, minor, patch
