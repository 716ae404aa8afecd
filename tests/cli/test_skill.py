"""holdfast skill: the page is printed, installed, and does not replace what somebody changed."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.server.mcp.documentation import docs_directory
from support.commands import Holdfast, answer
from support.documents import code

INSTALLED = Path(".agents/skills/holdfast/SKILL.md")


def test_the_page_is_printed_with_its_name_and_purpose(holdfast: Holdfast) -> None:
    printed = holdfast("skill").stdout
    _, front, page = printed.split("---\n", 2)
    name, description = front.splitlines()
    assert name == "name: holdfast"
    assert 50 < len(description.removeprefix("description: ")) < 1024
    assert page.strip() == (docs_directory() / "skill.md").read_text().strip()


def test_it_is_installed_and_what_was_changed_stays(holdfast: Holdfast) -> None:
    for _ in range(2):
        assert holdfast("skill", "install").exit_code == 0
    assert INSTALLED.read_text() == holdfast("skill").stdout
    INSTALLED.write_text("mine")
    refused = holdfast("skill", "install")
    assert (refused.exit_code, INSTALLED.read_text()) == (2, "mine")
    assert "--force" in refused.stderr
    assert answer(holdfast("skill", "install", "--force", "--json")) == {"path": str(INSTALLED)}
    assert INSTALLED.read_text() != "mine"
    assert holdfast("skill", "install", "/dev/null/x").exit_code == 2


@pytest.mark.full
def test_the_code_of_the_page_runs(tmp_path: Path) -> None:
    for block in code((docs_directory() / "skill.md").read_text(), "python"):
        name = block.partition("\n")[0].removeprefix("# ")
        (tmp_path / name).write_text(block)
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["holdfast.testing"]\n')
    tests = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:django",
        "test_shop.py",
    ]
    subprocess.run(tests, cwd=tmp_path, check=True, timeout=110)
    shutil.rmtree(tmp_path)
