"""holdfast command list and check."""

import json
from functools import partial
from pathlib import Path

from support.commands import run as run_command
from support.documents import ROOT

CONFIGURATION = f"""
[tool.holdfast.commands.math]
argv = ["python", "-I", "{ROOT}/examples/task_executor.py"]
types = ["math."]
timeout = "20s"
memory = "512M"

[tool.holdfast.commands.broken]
argv = ["no-such-program"]
types = ["broken.v1"]
"""


run = partial(run_command, url="postgresql://nobody@nowhere/at_all")  # which is not needed


def test_commands_are_listed_with_their_programs(elsewhere: Path) -> None:
    assert run("command", "list").exit_code == 0
    (elsewhere / "pyproject.toml").write_text(CONFIGURATION)
    listed = run("command", "list")
    assert "math.  " in listed.stdout
    assert "memory 512M" in listed.stdout
    assert "not found" in listed.stdout
    found = json.loads(run("command", "list", "--json").stdout)
    assert (found["math"]["memory"], found["broken"]["program"]) == (512 * 1024 * 1024, None)


def test_a_command_is_checked_against_the_protocol(elsewhere: Path) -> None:
    (elsewhere / "pyproject.toml").write_text(CONFIGURATION)
    checked = run("command", "check", "math", "--payload", '{"task": "shout", "arguments": {"text": "a"}}')
    assert (checked.exit_code, "FAILED" in checked.stdout) == (0, False)
    broken = run("command", "check", "broken", "--json")
    assert broken.exit_code == 1
    assert json.loads(broken.stdout) == [
        {
            "name": "can be started",
            "holds": False,
            "seen": "the program no-such-program of command broken is not found",
        }
    ]
    unknown = run("command", "check", "other")
    assert unknown.exit_code == 2
    assert "expected one of math, broken" in unknown.stderr


def test_a_command_that_cannot_be_used_as_configured_is_refused(elsewhere: Path) -> None:
    (elsewhere / "pyproject.toml").write_text('[tool.holdfast.commands.x]\nargv = []\ntypes = ["a"]\n')
    assert "commands.x.argv" in run("command", "list").stderr
    (elsewhere / "pyproject.toml").write_text('[tool.holdfast.commands.x]\nargv = ["a"]\nshell = true\n')
    assert "commands.x." in run("command", "list").stderr
