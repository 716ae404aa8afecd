"""What a worker runs with, so that it can be told of its runs later: versions, the commit, the host."""

import functools
import platform
import socket
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from holdfast import __version__
from holdfast.executors.origin import Origin
from holdfast.handler import Handler

_REFERENCE = "ref: "


def describe_environment(origin: Origin | None, handlers: Mapping[str, Handler]) -> dict[str, Any]:
    """Only what is known; nothing of the process's variables or arguments, which may hold secrets."""
    module = _module_of(origin, handlers)
    found = {
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "platform": platform.platform(),
        "hostname": socket.gethostname(),
        "holdfast": __version__,
        "application": None if origin is None else str(origin),
        **_distribution_of(module),
        "commit": _commit_of(_file_of(module)),
    }
    return {name: value for name, value in found.items() if value is not None}


def _module_of(origin: Origin | None, handlers: Mapping[str, Handler]) -> str | None:
    """Where the application is, or else its first handler."""
    if origin is not None:
        return origin.module or "__main__"
    return next((handler.function.__module__ for handler in handlers.values()), None)


@functools.cache
def _distribution_of(module: str | None) -> dict[str, str]:
    """What installed the module. Lists of files are searched as text: to parse them all takes a second."""
    top, file = (module or "").partition(".")[0], _file_of(module)
    if not top or file is None:
        return {}
    for installed in metadata.distributions(path=[str(parent) for parent in file.absolute().parents]):
        files = "\n" + (installed.read_text("RECORD") or "")
        if f"\n{top}/" in files or f"\n{top}.py," in files:
            return {"package": installed.name, "package_version": installed.version}
    return {}


def _file_of(module: str | None) -> Path | None:
    file = getattr(sys.modules.get(module or ""), "__file__", None)
    return None if file is None else Path(file)


def _commit_of(file: Path | None) -> str | None:
    """Read from the checkout that the application is in, if it is in one."""
    for directory in [] if file is None else file.absolute().parents:
        if (directory / ".git").exists():
            try:
                return _head_of(directory / ".git")
            except OSError:
                return None
    return None


def _head_of(git: Path) -> str | None:
    if git.is_file():  # of a worktree or a submodule: it says where the rest is
        git = (git.parent / git.read_text().partition("gitdir:")[2].strip()).resolve()
    head = (git / "HEAD").read_text().strip()
    if not head.startswith(_REFERENCE):
        return head
    name = head.removeprefix(_REFERENCE)
    common = git / "commondir"
    shared = (git / common.read_text().strip()).resolve() if common.exists() else git
    for place in (git / name, shared / name):
        if place.exists():
            return place.read_text().strip()
    packed = shared / "packed-refs"
    lines = packed.read_text().splitlines() if packed.exists() else []
    return next((line.split()[0] for line in lines if line.endswith(f" {name}")), None)
