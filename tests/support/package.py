"""Distributions as somebody else writes them, built and installed into a directory of the test."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

import pytest

PROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "{name}"
version = "1.0"
{points}
[tool.hatch.build.targets.wheel]
include = ["{name}.py"]
"""
UV = Path(sys.executable).with_name("uv")


def install_package(directory: Path, name: str, source: str, points: Mapping[str, Mapping[str, str]]) -> Path:
    """Install a distribution of one module, whose entry points are given by group and name."""
    project, target = directory / "project", directory / "installed"
    project.mkdir()
    (project / f"{name}.py").write_text(source)
    tables = "\n".join(
        f'[project.entry-points."{group}"]\n'
        + "".join(f'{point} = "{value}"\n' for point, value in given.items())
        for group, given in points.items()
    )
    (project / "pyproject.toml").write_text(PROJECT.format(name=name, points=tables))
    command = [str(UV), "pip", "install", "--quiet", "--offline", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "--python", sys.executable, "--target", target, project], check=True)
    return target


def make_importable(monkeypatch: pytest.MonkeyPatch, target: Path, name: str) -> None:
    """For the rest of the test."""
    monkeypatch.syspath_prepend(target)
    monkeypatch.setitem(sys.modules, name, ModuleType(name))  # so that it is removed afterwards
    del sys.modules[name]
