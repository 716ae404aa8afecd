"""The spawner: what a run leaves behind, and what runs of one account can do to one another."""

import asyncio
import ctypes
import os
import signal
from collections.abc import AsyncIterator

import pytest

from holdfast.isolation import process_tree
from holdfast.isolation.spawner_client import Program, SpawnedProcess, SpawnerClient

PTRACE_SEIZE = 0x4206


@pytest.fixture
async def spawner() -> AsyncIterator[SpawnerClient]:
    one = SpawnerClient()
    yield one
    await one.close()


async def _shell(spawner: SpawnerClient, script: str, user: str | None = None) -> tuple[SpawnedProcess, int]:
    """A shell that runs these commands, and where to read what it prints."""
    reads, writes = os.pipe()
    null = os.open(os.devnull, os.O_RDWR)
    program = Program("/bin/sh", ["sh", "-c", script], {"PATH": os.environ["PATH"]}, "/", user=user)
    try:
        return await spawner.start(program, [null, writes, writes]), reads
    finally:
        os.close(null)
        os.close(writes)


async def _line(reads: int) -> str:
    return (await asyncio.to_thread(os.read, reads, 10_000)).decode()


@pytest.mark.skipif(not process_tree.IS_LINUX, reason="this needs ptrace of Linux")
async def test_a_stray_that_cannot_be_collected_delays_no_other_run(spawner: SpawnerClient) -> None:
    leaves, reads = await _shell(spawner, "setsid sleep 600 & echo $!; wait")
    stray = int(await _line(reads))
    # The spawner cannot collect a process whose end its tracer has not seen yet.
    assert ctypes.CDLL(None).ptrace(PTRACE_SEIZE, stray, None, None) == 0
    try:
        leaves.end(0)
        while not process_tree.is_dead(stray):  # noqa: ASYNC110 - nothing tells when
            await asyncio.sleep(0.01)
        other, _ = await _shell(spawner, "exit 3")
        assert (await other.exit).exit_code == 3
        assert not leaves.exit.done(), "its run still waits for the stray"
    finally:
        os.waitpid(stray, 0)  # noqa: ASYNC222 - only the thread that traces may, and it is dead already
    assert (await leaves.exit).signal == signal.SIGKILL


@pytest.mark.skipif(os.geteuid() != 0, reason="another account needs root")
@pytest.mark.skipif(not process_tree.can_enclose(), reason="this needs Linux 6.12 with Landlock")
async def test_runs_of_one_account_can_neither_signal_nor_trace_one_another(spawner: SpawnerClient) -> None:
    asleep, reads = await _shell(spawner, "echo $$; exec sleep 600", user="nobody")
    pid = int(await _line(reads))
    script = f"kill -9 {pid}; kill -9 -1; cat /proc/{pid}/environ; sleep 600 & kill $!; wait $!; echo own $?"
    other, reads = await _shell(spawner, script, user="nobody")
    assert (await other.exit).exit_code == 0
    said = await _line(reads)
    assert "own 143" in said, "its own processes it may end"
    assert "Permission denied" in said
    assert not asleep.exit.done()
    asleep.end(0)
    assert (await asleep.exit).signal == signal.SIGKILL


async def test_no_program_gains_rights_by_its_set_user_id_bit(spawner: SpawnerClient) -> None:
    run, reads = await _shell(spawner, "grep NoNewPrivs /proc/self/status")
    await run.exit
    assert (await _line(reads)).split() == ["NoNewPrivs:", "1"]
