"""The bill of materials of a release as CycloneDX 1.6: what can be installed, from requirements.lock."""

import json
import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

FOR_DEVELOPERS = {"test", "testing", "dev", "contribute"}
"""Extras that are only for those who develop Holdfast."""

_LOCKED = re.compile(
    r"^(?P<name>[a-z0-9][a-z0-9._-]*)(?:\[[^\]]*\])?==(?P<version>[^\s;\\]+)(?: ; (?P<marker>[^\\]+))?"
)
_NAMED = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)(?:\[(?P<extras>[^\]]*)\])?")


@dataclass
class Locked:
    """One entry of the lock, with those for whose sake it is there."""

    name: str
    version: str
    hashes: list[str] = field(default_factory=list)
    via: set[str] = field(default_factory=set)

    @property
    def ref(self) -> str:
        return f"pkg:pypi/{self.name}@{self.version}"


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def read_lock(text: str) -> list[Locked]:
    found: list[Locked] = []
    for line in text.splitlines():
        if entry := _LOCKED.match(line):
            found.append(Locked(normal(entry["name"]), entry["version"]))
        elif "--hash=sha256:" in line:
            found[-1].hashes.append(line.split("--hash=sha256:")[1].rstrip(" \\"))
        elif found and line.startswith("    #"):
            found[-1].via.add(normal(line.lstrip(" #").removeprefix("via").strip().partition(" ")[0]))
    return found


def roots(project: dict[str, Any]) -> tuple[set[str], set[str]]:
    """What the core asks for, and what its extras for users do."""
    extras = {
        name: wanted
        for name, wanted in project["optional-dependencies"].items()
        if name not in FOR_DEVELOPERS
    }
    return _names(project["dependencies"]), _names(one for wanted in extras.values() for one in wanted)


def _names(requirements: Iterable[str]) -> set[str]:
    found = [_NAMED.match(requirement) for requirement in requirements]
    names = {normal(one["name"]) for one in found if one} - {"holdfast-pg"}
    binary = {f"{normal(one['name'])}-binary" for one in found if one and "binary" in (one["extras"] or "")}
    return names | binary


def closure(start: set[str], locked: list[Locked]) -> set[str]:
    reached: set[str] = set()
    waiting = set(start)
    while waiting:
        reached |= waiting
        waiting = {one.name for one in locked if one.via & waiting} - reached
    return reached


def bill_of_materials(root: Path, epoch: int) -> dict[str, Any]:
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    lock = (root / "requirements.lock").read_text()
    locked = read_lock(lock)
    core, extras = (closure(names, locked) for names in roots(project))
    shipped = [one for one in locked if one.name in core | extras]
    own = Locked(project["name"], project["version"])
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid5(NAMESPACE_URL, own.ref + lock)}",
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(epoch, UTC).isoformat().replace("+00:00", "Z"),
            "component": {
                **_component(own),
                "type": "library",
                "licenses": [{"license": {"id": project["license"]}}],
            },
        },
        "components": [
            {**_component(one), "scope": "required" if one.name in core else "optional"} for one in shipped
        ],
        "dependencies": [
            {
                "ref": own.ref,
                "dependsOn": [one.ref for one in shipped if one.name in set().union(*roots(project))],
            },
            *(
                {"ref": one.ref, "dependsOn": [other.ref for other in shipped if one.name in other.via]}
                for one in shipped
            ),
        ],
    }


def _component(one: Locked) -> dict[str, Any]:
    component = {
        "type": "library",
        "bom-ref": one.ref,
        "name": one.name,
        "version": one.version,
        "purl": one.ref,
    }
    hashes = [{"alg": "SHA-256", "content": content} for content in one.hashes]
    return component | ({"hashes": hashes} if hashes else {})


def write(root: Path, epoch: int, path: Path) -> None:
    path.write_text(json.dumps(bill_of_materials(root, epoch), indent=2) + "\n")
