"""Hosts of a test leave nothing behind."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from acceptance.waiting import wait_for
from support.hosts import network

_TEST = """
import sys
from support.hosts import network

with network({"one": ()}) as found:
    host = found.hosts["one"]
    host.start("sleep", "1000", user="root", log="/run/log")
    while not host.programs():
        pass
    print(host.pid, *host.programs(), flush=True)
    sys.stdin.read()
"""


@pytest.mark.full
def test_the_programs_of_a_host_end_when_the_test_is_killed() -> None:
    with network({}):
        pass  # or it is skipped
    command, environment = [sys.executable, "-c", _TEST], os.environ | {"PYTHONPATH": "tests"}
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as test:
        assert test.stdout
        processes = [Path("/proc", pid) for pid in test.stdout.readline().split()]
        test.kill()

    assert len(processes) > 1
    wait_for("them to end", lambda: not any(process.exists() for process in processes))
