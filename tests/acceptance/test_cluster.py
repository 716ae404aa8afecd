"""A cluster of Patroni, etcd and HAProxy loses its primary under load.

Half of the clients and workers know all servers, the others the proxy.
"""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from time import monotonic, sleep

import pytest

from acceptance.checker import check
from acceptance.cluster import PROXY, SERVERS, Cluster, running_cluster
from acceptance.fleet import Fleet
from acceptance.ground import wait_until_quiet
from acceptance.producer import Producer
from acceptance.trial import sized, tell, trial
from acceptance.waiting import wait_for
from acceptance.witness import Witness
from holdfast._connections.session import with_defaults

SECONDS = sized(1, 3, 10)
WORKERS = {"HOLDFAST_LEASE": 4.0, "HOLDFAST_HEARTBEAT": 1.0, "WORKER_CONCURRENCY": 20}

Act = Callable[[Cluster, str], None]


class Load:
    """Two clients and two workers, and how long each of the ways was interrupted."""

    def __init__(self, cluster: Cluster, directory: Path) -> None:
        self.cluster = cluster
        self.witness = Witness(directory / "witness")
        self.fleet = Fleet(cluster.address("holdfast_worker"), self.witness, directory)
        self.producers = {
            way: Producer(
                with_defaults(cluster.address("holdfast_client", proxy=proxy)),
                per_second=50,
                seconds=(0.0, 0.005, 0.02, 0.1, 0.5),
                started=self.witness.count_starts,
                name=way,
            )
            for way, proxy in (("direct", False), ("proxied", True))
        }

    def start_workers(self) -> None:
        self.fleet.launch(WORKERS)
        self.fleet.launch(WORKERS | {"DATABASE_URL": self.cluster.address("holdfast_worker", proxy=True)})
        for worker in self.fleet.all:
            worker.wait_until_ready()

    def acknowledged(self) -> int:
        return sum(len(producer.acknowledged) for producer in self.producers.values())

    def wait_until_it_goes_on(self, old: str) -> dict[str, float]:
        """When a task was enqueued and run after another server became the primary, for each way."""
        wait_for("another primary", lambda: self.cluster.primary(other_than=old), 120)
        known = {way: set(producer.acknowledged) for way, producer in self.producers.items()}
        times: dict[str, float] = {}

        def has_gone_on() -> bool:
            started = {line.label for line in self.witness.lines("started")}
            for way, producer in self.producers.items():
                if started & (producer.acknowledged.keys() - known[way]):
                    times.setdefault(way, monotonic())
            return len(times) == len(self.producers)

        wait_for("work to go on", has_gone_on, 120)
        return times


def fail_over(directory: Path, fault: Act, mend: Act, what: str) -> None:
    """Cause the fault, wait until work goes on, mend it, and check everything."""
    with running_cluster() as cluster, ExitStack() as stack:
        load = Load(cluster, directory)
        stack.callback(load.fleet.close)
        load.start_workers()
        with ExitStack() as producing:
            for producer in load.producers.values():
                producing.enter_context(producer.producing())
            sleep(SECONDS)
            old, before, began = cluster.primary(), load.acknowledged(), monotonic()
            fault(cluster, old)
            times = load.wait_until_it_goes_on(old)
            mend(cluster, old)
            wait_for("the old primary to follow the new one", cluster.is_complete, 180)
            sleep(SECONDS)
        conn = cluster.connect()
        wait_until_quiet(conn)
        verdict = check(conn, load.witness, load.fleet, *load.producers.values())
        assert load.fleet.running == load.fleet.all
    after = load.acknowledged() - before
    tell(
        f"{before} tasks acknowledged before {what} and {after} after it, none lost, none ended twice, "
        f"{verdict.reruns} handlers ran again; work went on after {times['direct'] - began:.1f} s "
        f"with the addresses of all servers, after {times['proxied'] - began:.1f} s through HAProxy"
    )


def nothing(cluster: Cluster, old: str) -> None:
    """There is nothing to mend."""


def kill(cluster: Cluster, old: str) -> None:
    """PostgreSQL, Patroni and etcd of the host, all with SIGKILL."""
    cluster.network.hosts[old].kill_all()


def start(cluster: Cluster, old: str) -> None:
    cluster.start(old)


def others(*, clients: bool) -> Callable[[str], list[str]]:
    added = [PROXY, "app"] if clients else []
    return lambda old: [name for name in SERVERS if name != old] + added


def switch_over(cluster: Cluster, old: str) -> None:
    del old
    cluster.switch_over()


@trial("P1", "P3", "P6")
@pytest.mark.full
@pytest.mark.timeout(400)
def test_no_acknowledged_task_is_lost_when_the_host_of_a_primary_dies(tmp_path: Path) -> None:
    fail_over(tmp_path, kill, start, "the primary was killed")


@trial("P1", "P3", "P6", everyday=False)
@pytest.mark.parametrize("clients", [False, True], ids=["but_for_clients", "from_all"])
@pytest.mark.timeout(400)
def test_no_acknowledged_task_is_lost_when_a_primary_is_cut_off(tmp_path: Path, *, clients: bool) -> None:
    """If clients still reach it, they wait, because no standby confirms their commits."""
    away = others(clients=clients)
    fail_over(
        tmp_path,
        lambda cluster, old: cluster.network.separate(old, *away(old)),
        lambda cluster, old: cluster.network.rejoin(old, *away(old)),
        f"the primary was cut off from {'all others' if clients else 'the other servers'}",
    )


@trial("P1", "P3", "P6", everyday=False)
@pytest.mark.timeout(400)
def test_no_acknowledged_task_is_lost_by_a_switchover(tmp_path: Path) -> None:
    fail_over(tmp_path, switch_over, nothing, "the switchover")
