"""A share of one core for a server: a cgroup, of the first or second version. Needs root."""

import subprocess
from pathlib import Path

V1, V1_ACCOUNTS = Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup/cpuacct")
V2 = Path("/sys/fs/cgroup")
PERIOD_MICROSECONDS = 20_000


class Quota:
    """A share of one core for a server and every process that it starts, and what they used of it."""

    def __init__(self, name: str, share: float) -> None:
        self._old = (V1 / "cpu.cfs_quota_us").exists()
        roots = [V1, V1_ACCOUNTS] if self._old else [V2]
        self._groups = [root / f"holdfast-bench-{name}" for root in roots]
        for group in self._groups:
            group.mkdir()
        self._share = share
        if self._old:
            (self._groups[0] / "cpu.cfs_period_us").write_text(str(PERIOD_MICROSECONDS))

    def apply(self, *, limited: bool) -> None:
        quota = int(PERIOD_MICROSECONDS * self._share)
        if self._old:
            (self._groups[0] / "cpu.cfs_quota_us").write_text(str(quota if limited else -1))
        else:
            (self._groups[0] / "cpu.max").write_text(f"{quota if limited else 'max'} {PERIOD_MICROSECONDS}")

    def limit(self, pid: int) -> None:
        children = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False)  # noqa: S607
        for one in [pid, *map(int, children.stdout.split())]:
            for group in self._groups:
                (group / "cgroup.procs").write_text(str(one))

    def used_seconds(self) -> float:
        if self._old:
            return int((self._groups[1] / "cpuacct.usage").read_text()) / 1e9
        return int((self._groups[0] / "cpu.stat").read_text().split()[1]) / 1e6

    def remove(self) -> None:
        for group in self._groups:
            group.rmdir()
