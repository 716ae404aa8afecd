"""External programs: what goes in, what comes out, and how each end is told apart."""

import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from holdfast._worker.envelope import Envelope
from holdfast.isolation.command_check import check_command
from holdfast.isolation.command_run import CommandPlan, CommandRun, chosen_variables, find_program
from holdfast.isolation.run_end import RunBounds, RunEnd
from holdfast.isolation.spawner_client import ProcessNotStarted, SpawnerClient
from holdfast.resources import Resources
from support.documents import ROOT

OK = """'{"success": true}'"""
NO = """'{"success": false, "error": "no"}'"""


@pytest.fixture
async def spawner() -> AsyncIterator[SpawnerClient]:
    one = SpawnerClient()
    yield one
    await one.close()


def plan(*arguments: str, directory: Path | None = None, **environment: str) -> CommandPlan:
    return CommandPlan("test", arguments, {**chosen_variables(()), **environment}, directory, None)


def bounds(**given: Any) -> RunBounds:
    return RunBounds(
        **{"timeout": 30.0, "output": 1024 * 1024, "grace": 0.3, "resources": Resources(), **given}
    )


async def run(spawner: SpawnerClient, script: str, payload: str = "{}", **given: Any) -> RunEnd[Envelope]:
    """A line for the shell, here where it is only a short way to write a program."""
    return await CommandRun(plan("sh", "-c", script), bounds(**given), lambda _: None).run(
        spawner, payload.encode()
    )


async def test_the_payload_goes_in_and_the_envelope_comes_out(spawner: SpawnerClient) -> None:
    script = """read -r payload; echo "heard" >&2; printf '{"success": true, "payload": %s}' "$payload" """
    end = await run(spawner, script, '{"a": [1.10, "é"], "n": 12345678901234567890.125}\n')
    assert end.answer is not None
    assert end.answer.payload == '{"a": [1.10, "é"], "n": 12345678901234567890.125}', "with every digit"
    assert end.detail["stderr"] == "heard\n"
    assert (end.detail["exit_code"], end.detail["left_processes"]) == (0, 0)


@pytest.mark.parametrize(
    ("script", "kind", "message"),
    [
        ("exit 3", "exit_code", "exit code 3"),
        (f"echo {OK}; exit 3", "exit_code", "exit code 3"),
        ("kill -SEGV $$", "signal", "SIGSEGV"),
        ("true", "envelope_missing", "without an envelope"),
        ("echo hello", "envelope_malformed", "not one JSON document"),
        (f"echo {OK}; echo more", "envelope_malformed", "not one JSON document"),
        ("echo '[]'", "envelope_malformed", "not an object"),
        ("""echo '{"success": 1}'""", "envelope_malformed", 'no boolean "success"'),
        ("""echo '{"success": false}'""", "envelope_malformed", "does not say why"),
        ("""echo '{"success": true, "error": "no"}'""", "envelope_malformed", 'and has "error"'),
        ("""echo '{"success": true, "payload": NaN}'""", "envelope_malformed", "NaN is not JSON"),
        (r"printf '\377'", "envelope_malformed", "not UTF-8"),
        ("cat /dev/zero", "output_limit", "more than the 1M allowed"),
    ],
)
async def test_each_end_has_its_kind(spawner: SpawnerClient, script: str, kind: str, message: str) -> None:
    end = await run(spawner, script)
    assert end.kind == kind
    assert message in end.message


async def test_errors_and_refusals_of_the_program_are_told(spawner: SpawnerClient) -> None:
    failed = await run(spawner, """echo '{"success": false, "error": "no disk"}'""")
    declined = await run(spawner, """echo '{"success": false, "validation_failure_message": "no id"}'""")
    assert failed.answer is not None
    assert failed.answer.error == "no disk"
    assert declined.answer is not None
    assert declined.answer.validation_failure == "no id"


async def test_one_that_does_not_end_in_time_is_killed_with_its_family(
    spawner: SpawnerClient, tmp_path: Path
) -> None:
    script = f"""trap '' TERM; setsid sh -c 'trap "" TERM; echo $$ > {tmp_path}/pid; sleep 600' & sleep 600"""
    end = await run(spawner, script, timeout=3.0)  # until then it has written its process id
    assert (end.kind, end.detail["signal"]) == ("timeout", "SIGKILL")
    pid = int((tmp_path / "pid").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_one_that_goes_over_a_limit_is_told_so(spawner: SpawnerClient, tmp_path: Path) -> None:
    allocate = "python3 -c 'x = [b\"x\" * 10**6 for _ in range(1000)]; import time; time.sleep(600)'"
    assert (await run(spawner, allocate, resources=Resources(memory="64M"))).kind == "memory_limit"
    spin = "while :; do :; done"
    assert (await run(spawner, spin, resources=Resources(cpu=1))).kind == "cpu_limit"
    write = f"exec dd if=/dev/zero of={tmp_path}/big bs=1M count=10"
    assert (await run(spawner, write, resources=Resources(file_size="1M"))).kind == "file_size_limit"
    fork = "while :; do sleep 600 & done"
    assert (await run(spawner, fork, resources=Resources(processes=20))).kind == "process_limit"


async def test_it_is_given_no_more_than_it_was_allowed(
    spawner: SpawnerClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "x")
    monkeypatch.setenv("LANG", "C.UTF-8")
    environment = chosen_variables(("LANG", "MODE=fast", "NOT_SET"))
    assert environment == {"PATH": environment["PATH"], "LANG": "C.UTF-8", "MODE": "fast"}
    script = "env | cut -d= -f1; echo -; stat -c %a .; ls; umask; echo -; ls /proc/self/fd"
    one = CommandPlan("test", ("sh", "-c", f"({script}) >&2; echo {OK}"), environment, None, None)
    end = await CommandRun(one, bounds(), lambda _: None).run(spawner, b"{}")
    names, place, descriptors = (part.split() for part in end.detail["stderr"].split("-\n"))
    assert set(names) == {"HOLDFAST_SPAWNER", "LANG", "MODE", "PATH", "PWD"}
    assert place == ["700", "0077"], "an empty directory of its own"
    assert descriptors == ["0", "1", "2", "3"], "the last is that of ls itself"


async def test_it_runs_where_it_is_told_to(spawner: SpawnerClient, tmp_path: Path) -> None:
    script = f"pwd >&2; echo {OK}"
    one = plan("sh", "-c", script, directory=tmp_path)
    end = await CommandRun(one, bounds(), lambda _: None).run(spawner, b"{}")
    assert end.detail["stderr"].strip() == str(tmp_path)


async def test_a_program_that_cannot_be_started_is_told(spawner: SpawnerClient, tmp_path: Path) -> None:
    (tmp_path / "broken").write_text("#!/nowhere/at/all\n")
    (tmp_path / "broken").chmod(0o755)
    for name, message in [("no-such-program", "is not found"), (str(tmp_path / "broken"), "No such file")]:
        with pytest.raises(ProcessNotStarted, match=message):
            await CommandRun(plan(name), bounds(), lambda _: None).run(spawner, b"{}")


def test_programs_are_looked_for(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("#!/bin/sh\n")
    assert find_program("./run", tmp_path) is None, "it cannot be executed"
    (tmp_path / "run").chmod(0o755)
    assert find_program("./run", tmp_path) == str(tmp_path / "run")
    assert find_program("sh", None) in ("/bin/sh", "/usr/bin/sh")
    assert find_program("no-such-program", None) is None


async def _failures(*arguments: str, payload: str = "{}") -> list[str]:
    return [
        finding.name
        async for finding in check_command(plan(*arguments), bounds(grace=2.0), payload)
        if not finding.holds
    ]


async def test_the_example_conforms() -> None:
    payload = json.dumps({"task": "add", "arguments": {"numbers": [1, 2]}})
    assert await _failures("python", "-I", str(ROOT / "examples/task_executor.py"), payload=payload) == []


@pytest.mark.parametrize(
    ("script", "failures"),
    [
        ("no-such-program", ["can be started"]),
        (f"cat > /dev/null; echo {OK}", ["declines what is not an object"]),
        (
            f"cat > /dev/null; echo hello; echo {NO}",
            [
                "returns an envelope for the payload",
                "returns an envelope for a payload of 200K",
                "declines what is not an object",
            ],
        ),
        (
            f"trap '' TERM; cat > /dev/null; sleep 600 > /dev/null & echo {NO}",
            ["leaves no process behind", "ends within 2 s of SIGTERM"],
        ),
    ],
)
async def test_a_program_that_does_not_conform_is_told_in_what(script: str, failures: list[str]) -> None:
    arguments = [script] if script == "no-such-program" else ["sh", "-c", script]
    assert await _failures(*arguments) == failures
