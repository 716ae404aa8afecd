"""The release before, as its users had it: its commands, workers and clients, in processes of their own."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

from acceptance.fleet import HOLDFAST, TESTS
from acceptance.mixed import Case
from support.releases import unpack_version_1

_NAMES = """
import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType

NAMES = {
    "holdfast._connections": "holdfast.connections",
    "holdfast._engine": "holdfast.engine",
    "holdfast._install": None,
    "holdfast._install.postgres": "holdfast.postgres",
    "holdfast._install.schema": "holdfast.schema",
}


class Former:
    def find_spec(self, name, path=None, target=None):
        known = [new for new in NAMES if name == new or name.startswith(f"{new}.")]
        return ModuleSpec(name, self, is_package=True) if known else None

    def create_module(self, spec):
        new = max((new for new in NAMES if f"{spec.name}.".startswith(f"{new}.")), key=len)
        if NAMES[new] is None:
            return ModuleType(spec.name)
        return import_module(NAMES[new] + spec.name[len(new):])

    def exec_module(self, module):
        pass


sys.meta_path.insert(0, Former())
"""
"""Lets our clients find its modules by their names of today."""


@dataclass
class Told:
    """What the clients of the former release were told; as a producer, for the checker."""

    cases: list[Case] = field(default_factory=list)
    acknowledged: dict[str, UUID] = field(default_factory=dict)
    rolled_back: set[str] = field(default_factory=set)
    repeated: int = 0


class FormerRelease:
    """The package of version 1 of the schema."""

    def __init__(self, root: Path) -> None:
        source = unpack_version_1(root)
        (source / "sitecustomize.py").write_text(_NAMES)
        with (source / "holdfast" / "errors.py").open("a") as errors:
            errors.write("\nTransactionConflict, PartialBatchError = TryAgain, PartlyEnqueued\n")
        self.environment = {"PYTHONPATH": str(source)}

    def migrate(self, dsn: str) -> str:
        """Install its schema, and return what it printed."""
        done = subprocess.run(
            [HOLDFAST, "migrate"],
            env=self._environment(DATABASE_URL=dsn),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    @contextmanager
    def clients(self, url: str, witness: Path) -> Iterator[Told]:
        """Its clients are at work in the block. Afterwards, all that they were told is known."""
        told = Told()
        clients = subprocess.Popen(
            [sys.executable, "-m", "acceptance.clients", url, witness],
            cwd=TESTS,
            env=self._environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert clients.stdout
        assert clients.stdout.readline() == "working\n"
        try:
            yield told
            printed, _ = clients.communicate(timeout=120)
        finally:
            clients.kill()
            clients.wait()
        assert clients.returncode == 0
        _fill(told, json.loads(printed))

    def _environment(self, **more: str) -> dict[str, str]:
        return os.environ | self.environment | more


def _fill(told: Told, found: dict[str, Any]) -> None:
    told.cases = [Case(**case | {"tasks": [UUID(task) for task in case["tasks"]]}) for case in found["cases"]]
    told.acknowledged = {key: UUID(task) for key, task in found["acknowledged"].items()}
    told.rolled_back = set(found["rolled_back"])
    told.repeated = found["repeated"]
