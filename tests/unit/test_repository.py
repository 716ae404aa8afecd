"""The files for the forge and for pre-commit parse, and name only what exists."""

import re
import shlex
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from support.documents import ROOT, rows, sections

yaml: Any = import_module("yaml")  # comes with MkDocs, and has no types

WORKFLOWS = sorted((ROOT / ".github" / "workflows").iterdir())
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").iterdir())
MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = set(re.findall(r"^([a-z][a-z-]*):", MAKEFILE, re.MULTILINE))


def _commands(workflow: Path) -> list[list[str]]:
    jobs = yaml.safe_load(workflow.read_text())["jobs"].values()
    return [shlex.split(step["run"]) for job in jobs for step in job["steps"] if "run" in step]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_may_only_read_and_runs_what_exists(workflow: Path) -> None:
    read = yaml.safe_load(workflow.read_text())
    assert read["on"]
    assert read["permissions"] == {"contents": "read"}
    assert all(job["timeout-minutes"] and job["runs-on"] for job in read["jobs"].values())
    for command, *arguments in _commands(workflow):
        if command == "make":
            assert arguments[0] in TARGETS
        else:
            assert command == "git" or (ROOT / command).exists(), command


def test_the_tests_run_on_each_postgres_that_the_makefile_has() -> None:
    read = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
    matrix = read["jobs"]["test"]["strategy"]["matrix"]
    [line] = re.findall(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)
    assert set(matrix["postgres"]) == set(re.findall(r"suite-(\d+)", line))
    assert matrix["python"][0] == "3.11"


@pytest.mark.parametrize("form", FORMS, ids=lambda path: path.name)
def test_a_form_asks_each_question_once(form: Path) -> None:
    read = yaml.safe_load(form.read_text())
    assert read["name"]
    assert read["description"]
    asked = [one["id"] for one in read["body"] if one["type"] != "markdown"]
    assert asked
    assert len(asked) == len(set(asked))
    assert all(one["attributes"]["label"] for one in read["body"] if one["type"] != "markdown")


def test_the_hooks_are_tools_that_are_installed() -> None:
    [repository] = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert repository["repo"] == "local"
    locked = (ROOT / "requirements.lock").read_text()
    packages = {".venv/bin/ruff": "ruff", ".venv/bin/lint-imports": "import-linter"}
    for hook in repository["hooks"]:
        command, *arguments = shlex.split(hook["entry"])
        if command == "make":
            assert arguments[0] in TARGETS
        else:
            assert f"\n{packages[command]}==" in locked


def test_the_page_about_tests_names_each_folder_and_marker() -> None:
    page = sections(ROOT / "tests" / "README.md")
    folders = {name for row in rows(page["The folders"]) for name in re.findall(r"\w+", row[0])}
    there = {path.parent.name for path in (ROOT / "tests").glob("*/*.py")} - {"support"}
    assert folders == there
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"][
        "markers"
    ]
    named = {row[0].strip("`") for row in rows(page["Markers"])}
    assert named == {re.split(r"[(:]", marker)[0] for marker in declared}


def test_the_page_about_tests_names_fixtures_that_exist() -> None:
    written = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("conftest.py"))
    there = set(re.findall(r"@pytest.fixture.*\n(?:async )?def (\w+)", written))
    for row in rows(sections(ROOT / "tests" / "README.md")["Which fixture for what"]):
        named = set(re.findall(r"`([a-z]\w+)(?:\(…\))?`", row[1]))
        assert named <= there, row
