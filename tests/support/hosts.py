"""Hosts of a test's own: namespaces of the kernel with a private network between them.

A host has its own network, processes, mounts and name. What it writes is in memory. Its first process
reads from a pipe that the test holds: when the test ends, even by kill -9, the kernel ends all processes of
the host and removes the rest. Nothing is visible outside: no interface, no address, no file.
"""

import ctypes
import os
import pwd
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from support.programs import not_tested

NETWORK = "192.0.2"  # reserved for documentation: no real network has it
_SEARCHED = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
_OWN = ("net", "mount", "uts", "ipc")
_CLONE_NEWNET = 0x40000000

# With SIGCHLD ignored, the kernel removes ended processes that the first one inherits. Patroni would take
# them for a server that runs.
_STAY = (
    "import signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); "
    "print('ready', flush=True); sys.stdin.read()"
)
_FIRST_PROCESS = f"""
set -e
echo "$1" > /proc/sys/kernel/hostname
shift
for directory in /run "$@"; do mount -t tmpfs -o mode=755 tmpfs "$directory"; done
touch /run/hosts
mount --bind /run/hosts /etc/hosts
exec {sys.executable} -I -S -c "{_STAY}"
"""


class HostsError(Exception):
    """This machine or this login cannot make namespaces."""


class Host:
    """`directories` of it are empty at the start and its own."""

    def __init__(self, name: str, address: str, directories: Sequence[str] = ()) -> None:
        self.name, self.address = name, address
        self._started: list[subprocess.Popen[bytes]] = []
        options = [f"--{kind}" for kind in (*_OWN, "pid")]
        first = ["/bin/sh", "-c", _FIRST_PROCESS, "host", name, *directories]
        self._process = subprocess.Popen(
            ["unshare", *options, "--fork", "--kill-child", "--mount-proc", *first],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=os.environ | {"PATH": _SEARCHED},
        )
        assert self._process.stdout
        if self._process.stdout.readline() != b"ready\n":
            raise HostsError(self._process.communicate()[1].decode().strip())

    @property
    def pid(self) -> int:
        """Of a process that has its network and mounts."""
        return self._process.pid

    @property
    def root(self) -> Path:
        """Its files, to read and write from outside."""
        return Path(f"/proc/{self.pid}/root")

    def write(self, path: str, text: str, user: str = "root", mode: int = 0o644) -> None:
        file = self.root / path.removeprefix("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(mode)
        self.give(path, user)

    def make_directory(self, path: str, user: str) -> None:
        (self.root / path.removeprefix("/")).mkdir(parents=True, exist_ok=True)
        self.give(path, user)

    def give(self, path: str, user: str) -> None:
        account = pwd.getpwnam(user)
        os.chown(self.root / path.removeprefix("/"), account.pw_uid, account.pw_gid)

    def start(self, *command: str, user: str, log: str, environment: Mapping[str, str] | None = None) -> None:
        """Start a program in the background, which writes to this file of the host."""
        with (self.root / log.removeprefix("/")).open("ab") as output:
            program = subprocess.Popen(
                self._inside(command, user),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={"PATH": _SEARCHED, "LANG": "C.UTF-8", **(environment or {})},
            )
        self._started.append(program)

    def run(self, *command: str, user: str = "root", environment: Mapping[str, str] | None = None) -> str:
        done = subprocess.run(
            self._inside(command, user),
            capture_output=True,
            text=True,
            check=False,
            env={"PATH": _SEARCHED, "LANG": "C.UTF-8", **(environment or {})},
        )
        if done.returncode != 0:
            raise HostsError(f"{' '.join(command)} on {self.name}: {done.stdout}{done.stderr}")
        return done.stdout

    def _inside(self, command: Sequence[str], user: str) -> list[str]:
        account = pwd.getpwnam(user)
        of = f"/proc/{self.pid}/ns"
        return [
            "nsenter",
            *(f"--{kind}={of}/{'mnt' if kind == 'mount' else kind}" for kind in _OWN),
            f"--pid={of}/pid_for_children",
            f"--setgid={account.pw_gid}",
            f"--setuid={account.pw_uid}",
            *command,
        ]

    def ip(self, *arguments: str) -> None:
        """Configure its network."""
        command = ["nsenter", f"--net=/proc/{self.pid}/ns/net", "ip", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env={"PATH": _SEARCHED})
        if done.returncode != 0:
            raise HostsError(f"{' '.join(command)}: {done.stderr.strip()}")

    def kill_all(self) -> None:
        """End every program with SIGKILL, as if the power had failed. Files and network stay."""
        while running := self.programs():
            for pid in running:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def programs(self) -> list[int]:
        own = Path(f"/proc/{self.pid}/ns/pid_for_children").readlink()
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                inside = (process / "ns" / "pid").readlink() == own
                status = (process / "status").read_text() if inside else ""
            except OSError:  # it has ended meanwhile
                continue
            is_first = "\nNSpid:" in status and status.split("\nNSpid:")[1].split("\n")[0].split()[-1] == "1"
            if inside and not is_first and "\nState:\tZ" not in status:
                found.append(int(process.name))
        return found

    @contextmanager
    def inside(self) -> Iterator[None]:
        """The calling thread, and the threads and processes that it starts, use the host's network."""
        with (
            Path("/proc/thread-self/ns/net").open() as before,
            Path(f"/proc/{self.pid}/ns/net").open() as host,
        ):
            _set_network(host.fileno())
            try:
                yield
            finally:
                _set_network(before.fileno())

    def close(self) -> None:
        """Its first process ends with the pipe, and all others with the first."""
        self._process.communicate()
        for program in self._started:
            program.wait()


def _set_network(descriptor: int) -> None:
    if ctypes.CDLL(None, use_errno=True).setns(descriptor, _CLONE_NEWNET) != 0:
        raise HostsError(os.strerror(ctypes.get_errno()))


class Network:
    """Hosts on one bridge, which is a host without programs."""

    def __init__(self, switch: Host, hosts: Mapping[str, Host]) -> None:
        self.hosts = hosts
        switch.ip("link", "add", "switch", "type", "bridge")
        switch.ip("link", "set", "switch", "up")
        for host in hosts.values():
            switch.ip(
                "link", "add", host.name, "type", "veth", "peer", "name", "eth0", "netns", str(host.pid)
            )
            switch.ip("link", "set", host.name, "master", "switch", "up")
            host.ip("address", "add", f"{host.address}/24", "dev", "eth0")
            host.ip("link", "set", "eth0", "up")
            host.ip("link", "set", "lo", "up")
            names = "".join(f"{other.address} {other.name}\n" for other in hosts.values())
            host.write("/etc/hosts", f"127.0.0.1 localhost\n{names}")

    def separate(self, one: str, *others: str) -> None:
        """Their packets get lost without an error: each has a wrong hardware address of the other."""
        for here, there in self._pairs(one, others):
            wrong = ("lladdr", "02:00:00:00:00:01", "dev", "eth0", "nud", "permanent")
            here.ip("neighbour", "replace", there.address, *wrong)

    def rejoin(self, one: str, *others: str) -> None:
        for here, there in self._pairs(one, others):
            here.ip("neighbour", "delete", there.address, "dev", "eth0")

    def _pairs(self, one: str, others: Sequence[str]) -> list[tuple[Host, Host]]:
        pairs = [(self.hosts[one], self.hosts[other]) for other in others]
        return pairs + [(there, here) for here, there in pairs]


@contextmanager
def network(directories: Mapping[str, Sequence[str]]) -> Iterator[Network]:
    """Hosts with these names. Skipped where they cannot be made; in CI that is a failure."""
    with ExitStack() as stack:
        try:
            made = [_host("switch", 1, (), stack)]
            made += [_host(name, n, given, stack) for n, (name, given) in enumerate(directories.items(), 11)]
            found = Network(made[0], {host.name: host for host in made[1:]})
        except (HostsError, OSError) as error:
            not_tested(f"network namespaces cannot be made here: {error}")
        yield found


def _host(name: str, number: int, directories: Sequence[str], stack: ExitStack) -> Host:
    host = Host(name, f"{NETWORK}.{number}", directories)
    stack.callback(host.close)
    return host
