"""The cluster of docs/howto/survive-a-failover.md, on hosts of the test's own."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import psycopg
from psycopg.conninfo import make_conninfo

from acceptance.waiting import wait_for
from holdfast._connections.session import with_defaults
from holdfast._install.schema import migrate
from support.hosts import Host, Network, network
from support.programs import needed

FILES = Path(__file__).parents[2] / "deploy" / "patroni"
SERVERS = ("db1", "db2", "db3")
CLIENT, PROXY = "app", "proxy"
DATABASE = "app"
_PASSWORD = "of the tests"  # noqa: S105 - of servers that only the test can reach
_DIRECTORIES = {
    **dict.fromkeys(SERVERS, ("/var/lib/postgresql", "/var/lib/etcd", "/etc/patroni")),
    PROXY: ("/etc/haproxy",),
    CLIENT: (),
}
_LOGINS = {"holdfast_client": "shop", "holdfast_worker": "worker"}


class Cluster:
    """Three servers with PostgreSQL, Patroni and etcd each, and a proxy. Used from the host `app`."""

    def __init__(self, hosts: Network) -> None:
        self.network = hosts
        self._opened: list[psycopg.Connection[Any]] = []
        self._patroni = httpx.Client(timeout=2, trust_env=False)
        for name in SERVERS:
            self._install(hosts.hosts[name])
        for name in SERVERS:
            self.start(name)
        proxy = hosts.hosts[PROXY]
        proxy.write("/etc/haproxy/haproxy.cfg", (FILES / "haproxy.cfg").read_text())
        proxy.start("haproxy", "-db", "-f", "/etc/haproxy/haproxy.cfg", user="root", log="/run/haproxy.log")

    def _install(self, host: Host) -> None:
        host.write("/etc/patroni/config.yml", _file("patroni.yml", host.name), "postgres")
        host.make_directory("/var/lib/postgresql", "postgres")
        host.make_directory("/run/postgresql", "postgres")
        host.make_directory("/var/lib/etcd/default", "etcd")

    def start(self, name: str) -> None:
        """What systemd does when the host starts."""
        host = self.network.hosts[name]
        etcd = _variables("etcd.env", name) | {"ETCD_DATA_DIR": "/var/lib/etcd/default"}
        host.start("etcd", user="etcd", log="/run/etcd.log", environment=etcd)
        host.start(
            *("patroni", "/etc/patroni/config.yml"),
            user="postgres",
            log="/run/patroni.log",
            environment=_variables("patroni.env", name),
        )

    def prepare(self) -> None:
        """Install Holdfast, and create a login for clients and one for workers."""
        wait_for("the cluster to be complete", self.is_complete, 180)
        with psycopg.connect(self.address(database="postgres"), autocommit=True) as admin:
            admin.execute(f"create database {DATABASE}")
        migrate(self.address())
        with psycopg.connect(self.address(), autocommit=True) as admin:
            for role, login in _LOGINS.items():
                admin.execute(f"create role {login} login password '{_PASSWORD}' in role {role}")

    def address(self, role: str | None = None, *, proxy: bool = False, database: str = DATABASE) -> str:
        """Of all servers, or of the proxy; as a login with this role, or as the superuser."""
        names = (PROXY,) if proxy else SERVERS
        password = _PASSWORD if role else _variables("patroni.env", "")["PATRONI_SUPERUSER_PASSWORD"]
        return make_conninfo(
            host=",".join(self.network.hosts[name].address for name in names),
            port="5000" if proxy else "5432",
            user=_LOGINS[role] if role else "postgres",
            password=password,
            dbname=database,
            target_session_attrs="read-write",
        )

    def connect(self) -> psycopg.Connection[Any]:
        """A new session of the superuser on the primary."""
        connection = psycopg.connect(with_defaults(self.address()), autocommit=True)
        self._opened.append(connection)
        return connection

    def is_complete(self) -> bool:
        """Whether all servers run: one primary, and two standbys, of which one is synchronous."""
        for name in SERVERS:
            with suppress(httpx.HTTPError):
                members = self._patroni.get(self._url(name, "cluster")).json()["members"]
                roles = sorted(member["role"] for member in members)
                states = {(member["state"], member.get("timeline")) for member in members}
                return roles == ["leader", "replica", "sync_standby"] and len(states) == 1
        return False

    def primary(self, other_than: str = "") -> str:
        """The server that says that it is the primary; nothing if there is none."""
        for name in SERVERS:
            with suppress(httpx.HTTPError):
                found = self._patroni.get(self._url(name, "primary")).status_code == httpx.codes.OK
                if found and name != other_than:
                    return name
        return ""

    def _url(self, name: str, path: str) -> str:
        return f"http://{self.network.hosts[name].address}:8008/{path}"

    def switch_over(self) -> None:
        """By hand, as for maintenance."""
        self.network.hosts[self.primary()].run(
            *("patronictl", "-c", "/etc/patroni/config.yml", "switchover", "--force"),
            user="postgres",
            environment=_variables("patroni.env", ""),
        )

    def logs(self) -> str:
        """The end of what every program has written, for a test that fails."""
        found = []
        for host in self.network.hosts.values():
            for log in sorted((host.root / "run").glob("*.log")):
                lines = log.read_text(errors="replace").splitlines()[-25:]
                found += [f"--- {log.name} of {host.name}", *lines]
        return "\n".join(found)

    def close(self) -> None:
        self._patroni.close()
        while self._opened:
            self._opened.pop().close()


def _file(name: str, host: str) -> str:
    return (FILES / name).read_text().replace("HOST", host)


def _variables(name: str, host: str) -> dict[str, str]:
    lines = _file(name, host).splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


@contextmanager
def running_cluster() -> Iterator[Cluster]:
    """The block, and what it starts, is on the host `app`."""
    for program in ("patroni", "etcd", "haproxy", "ip", "nsenter", "unshare"):
        needed(program, "ensure-patroni")
    with network(_DIRECTORIES) as hosts, hosts.hosts[CLIENT].inside():
        cluster = Cluster(hosts)
        try:
            cluster.prepare()
            yield cluster
        except BaseException:
            print(cluster.logs())  # noqa: T201 - shown by pytest for a test that fails
            raise
        finally:
            cluster.close()
