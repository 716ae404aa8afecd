"""deploy/: the pages show its files, and its files name only commands, options and metrics that there are."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from ipaddress import ip_network
from itertools import pairwise
from pathlib import Path
from typing import Any

import psycopg
import pytest
from prometheus_client import CollectorRegistry

from docs.test_blocks import wrong_call
from holdfast._install.postgres import EMBEDDED_VERSION, binaries
from holdfast._worker.metrics import Collector, Metrics
from holdfast.server.probes import _QUEUE_GAUGES, GaugeCollector, _worker_gauges
from holdfast.shards.logins import PURPOSES, Purpose
from support.documents import DOCS, ROOT, code
from support.programs import needed
from support.server import disposable_server

DEPLOY = ROOT / "deploy"
RULES = DEPLOY / "prometheus" / "alerts.yml"
DASHBOARD = DEPLOY / "grafana" / "holdfast.json"
OUR_IMAGES = ("shop", "registry.example.com/shop")
yaml: Any = import_module("yaml")  # comes with MkDocs, and has no types


def _metrics() -> set[str]:
    """As Prometheus stores them."""
    registry = CollectorRegistry()
    registry.register(GaugeCollector(list(_worker_gauges([]))))
    found = {name for name, _, _ in _QUEUE_GAUGES} | {"holdfast_http_waits"}
    found |= {family.name for family in registry.collect()}
    for family in Collector(Metrics()).collect():
        ends = {"counter": ["_total"], "histogram": ["_bucket", "_count", "_sum"]}.get(family.type, [""])
        found |= {f"{family.name}{end}" for end in ends}
    return found


def _expressions() -> Iterator[str]:
    for group in yaml.safe_load(RULES.read_text())["groups"]:
        yield from (rule["expr"] for rule in group["rules"])
    dashboard = json.loads(DASHBOARD.read_text())
    for panel in dashboard["panels"]:
        yield from (target["expr"] for target in panel["targets"])
    yield from (variable["query"] for variable in dashboard["templating"]["list"])


def test_alerts_and_dashboard_name_only_metrics_that_there_are() -> None:
    known, named = _metrics(), set(re.findall(r"\bholdfast_\w+", " ".join(_expressions())))
    assert named - known == set()
    shown_somewhere = {name.removesuffix("_bucket") for name in named}
    kinds = {name for name in known if not name.endswith(("_count", "_sum"))}
    assert {name.removesuffix("_bucket") for name in kinds} - shown_somewhere == {
        "holdfast_batch_size",
        "holdfast_claimed_total",
    }


def test_panels_do_not_overlap_and_have_one_id_each() -> None:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = [panel["gridPos"] for panel in panels]
    cells = [
        (x, y)
        for place in places
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24


def test_the_page_shows_the_manifests() -> None:
    shown = code((DOCS / "howto" / "deploy-on-kubernetes.md").read_text(), "yaml")
    files = [DEPLOY / "kubernetes" / f"{name}.yaml" for name in ("worker", "migrate", "serve")]
    assert sorted(files) == sorted((DEPLOY / "kubernetes").iterdir())
    assert [block.strip() for block in shown] == [path.read_text().strip() for path in files]


def test_services_call_commands_that_there_are_and_wait_for_each_other() -> None:
    composed = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    services = composed["services"]
    for service in services.values():
        assert set(service.get("depends_on", {})) <= services.keys()
        if service["image"] in OUR_IMAGES and "entrypoint" not in service:
            assert wrong_call(shlex.join(["holdfast", *service["command"]])) is None
            assert service["read_only"]
    mounted = {name.partition(":")[0] for one in services.values() for name in one.get("volumes", ())}
    assert {name for name in mounted if not name.startswith("./")} == set(composed["volumes"])
    assert {name for name in mounted if name.startswith("./")} == {"./database.sql"}


def _services() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    return {name: one for name, one in found.items() if one["image"] in OUR_IMAGES}


def test_each_service_has_a_login_of_its_own_that_is_no_superuser() -> None:
    logins = {
        name: re.findall(r"//(\w+):\$\{(\w+)\}@", one["environment"]["DATABASE_URL"])[0]
        for name, one in _services().items()
    }
    assert logins == {
        "migrate": ("shop_migrate", "MIGRATE_PASSWORD"),
        "worker": ("shop_worker", "WORKER_PASSWORD"),
        "dispatcher": ("shop_dispatcher", "DISPATCHER_PASSWORD"),
        "web": ("shop_web", "WEB_PASSWORD"),
    }


def test_the_http_server_believes_one_address_about_those_of_clients() -> None:
    composed = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    command = _services()["web"]["command"]
    [network] = composed["networks"]["default"]["ipam"]["config"]
    assert command[command.index("--behind-proxy") + 1] == network["gateway"]


def test_no_manifest_believes_a_network_or_gives_a_pod_an_account() -> None:
    for path in (DEPLOY / "kubernetes").iterdir():
        for document in yaml.safe_load_all(path.read_text()):
            if document["kind"] != "Service":
                pod = document["spec"]["template"]["spec"]
                assert pod["automountServiceAccountToken"] is False, path.name
                [container] = pod["containers"]
                proxies = [
                    after for word, after in pairwise(container.get("args", ())) if word == "--behind-proxy"
                ]
                assert all(ip_network(proxy).num_addresses == 1 for proxy in proxies), path.name


def test_the_image_is_built_from_checked_packages_and_without_secrets() -> None:
    written = (DEPLOY / "Dockerfile").read_text()
    assert re.findall(r"pip install (.*)$", written, re.MULTILINE) == [
        "--require-hashes --requirement requirements.txt",
        "--no-index --no-deps --no-build-isolation .",
    ]
    ignored = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
    assert {".git", "**/.env*", "**/*.key", "**/*.pem", "deploy"} <= set(ignored)
    [script] = _services()["migrate"]["entrypoint"][1:]
    copied = {source for sources, _ in _copies(written) for source in sources}
    allowed = {line.removeprefix("!") for line in ignored if line.startswith("!")}
    assert {name for name in copied if name.startswith("deploy/")} == allowed
    assert script in copied


def _copies(dockerfile: str) -> list[tuple[list[str], str]]:
    """What is copied from the repository, and where to."""
    copied = [line.split()[1:] for line in dockerfile.splitlines() if line.startswith("COPY ")]
    return [(names[:-1], names[-1]) for names in copied if not names[0].startswith("--")]


@pytest.mark.full
@pytest.mark.timeout(600)  # it installs packages
def test_what_the_image_contains_starts_and_runs_a_task(tmp_path: Path) -> None:
    """There is no container engine here: the steps of the Dockerfile run in a directory of their own."""
    environment, image = tmp_path / "venv", tmp_path / "image"
    image.mkdir()
    written = (DEPLOY / "Dockerfile").read_text()
    for line in written.splitlines():
        verb, _, rest = line.partition(" ")
        if verb == "COPY" and not rest.startswith("--"):
            *names, place = rest.split()
            for name in names:
                source, target = ROOT / name, image / place
                if source.is_dir():
                    shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
                else:
                    target = target / source.name if place.endswith((".", "/")) else target
                    target.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(source, target)
        elif verb == "RUN" and "/venv" in rest:
            command = [
                sys.executable if word == "python" else word.replace("/venv", str(environment), 1)
                for word in shlex.split(rest)
            ]
            subprocess.run(command, cwd=image, check=True, capture_output=True)

    passwords = ("MIGRATE", "WORKER", "DISPATCHER", "WEB")
    variables = {f"{name}_PASSWORD": f"of {name}" for name in passwords} | {"HOLDFAST_WEB_SECRET": "s" * 64}
    path = f"{environment / 'bin'}:/usr/bin:/bin"
    with disposable_server() as server:
        psql = [str(binaries(EMBEDDED_VERSION) / "psql"), "--set", "ON_ERROR_STOP=1", "--file"]
        with psycopg.connect(server.url("postgres"), autocommit=True) as admin:
            admin.execute("create database shop")
        called = [*psql, str(DEPLOY / "database.sql"), server.url("shop")]
        subprocess.run(called, env=os.environ | variables, check=True, capture_output=True)

        def run(name: str, *arguments: str) -> "subprocess.Popen[str]":
            address = server.url("shop").replace("postgres@", f"shop_{name}@")
            return subprocess.Popen(
                arguments,
                cwd=image,
                env={"PATH": path, "DATABASE_URL": address, "HOME": str(tmp_path)} | variables,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )

        migration = run("migrate", *_services()["migrate"]["entrypoint"])
        printed, _ = migration.communicate()
        assert migration.returncode == 0, printed
        worker = run("worker", "holdfast", *_services()["worker"]["command"])
        try:
            program = "from shop.tasks import greet; print(greet.enqueue('Ann').result(timeout=60))"
            told = run("worker", "python", "-c", program)
            output, _ = told.communicate()
        finally:
            worker.terminate()
            worker.communicate()
    assert "Hello, Ann." in output
    assert (told.returncode, worker.returncode) == (0, 0)


@pytest.mark.full
def test_the_migration_creates_logins_with_the_roles_that_they_need_and_no_others() -> None:
    passwords = {f"{name}_PASSWORD": f"of {name}" for name in ("MIGRATE", "WORKER", "DISPATCHER", "WEB")}
    with disposable_server() as server, psycopg.connect(server.url("postgres"), autocommit=True) as admin:
        admin.execute("create database shop")
        url = server.url("shop").replace("postgres@", "shop_migrate@")
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        environment = os.environ | passwords | {"DATABASE_URL": url, "PATH": path}
        psql = [str(binaries(EMBEDDED_VERSION) / "psql"), "--set", "ON_ERROR_STOP=1", "--file"]
        called = [*psql, str(DEPLOY / "database.sql"), server.url("shop")]
        subprocess.run(called, env=environment, check=True, capture_output=True)
        for _ in range(2):
            script = [sys.executable, str(DEPLOY / "migrate.py")]
            subprocess.run(script, env=environment, check=True)
        found = admin.execute(
            """select r.rolname, r.rolsuper, r.rolcreaterole, p.rolpassword like 'SCRAM-SHA-256$%%', array(
                 select g.roleid::regrole::text from pg_auth_members g where g.member = r.oid order by 1)
               from pg_roles r join pg_authid p on p.oid = r.oid where r.rolname ~ '^shop_' order by 1"""
        ).fetchall()
    assert [row[:4] for row in found] == [
        ("shop_dispatcher", False, False, True),
        ("shop_migrate", False, True, True),
        ("shop_web", False, False, True),
        ("shop_worker", False, False, True),
    ]
    roles = {row[0]: row[4] for row in found if row[0] != "shop_migrate"}
    purposes = {f"shop_{purpose}": Purpose(purpose) for purpose in ("dispatcher", "web", "worker")}
    assert roles == {
        login: sorted(f"holdfast_{role}" for role in PURPOSES[purpose]) for login, purpose in purposes.items()
    }


def test_the_image_runs_an_existing_command_as_a_plain_user() -> None:
    written = (DEPLOY / "Dockerfile").read_text()
    entry, arguments = (
        json.loads(re.findall(rf"^{word} (\[.+\])$", written, re.MULTILINE)[-1])
        for word in ("ENTRYPOINT", "CMD")
    )
    assert wrong_call(shlex.join([*entry, *arguments])) is None
    assert re.findall(r"^USER (\d+)$", written, re.MULTILINE) == ["10001"]
    for path in (DEPLOY / "kubernetes").iterdir():
        for document in yaml.safe_load_all(path.read_text()):
            if document["kind"] != "Service":
                account = document["spec"]["template"]["spec"]["securityContext"]
                assert (account["runAsNonRoot"], account["runAsUser"]) == (True, 10001), path.name


@pytest.mark.full
@pytest.mark.parametrize(("command", "name"), [("check", "alerts.yml"), ("test", "alerts_test.yml")])
def test_promtool_accepts_the_alerts(command: str, name: str) -> None:
    promtool, file = needed("promtool", "ensure-promtool"), RULES.with_name(name)
    called = [str(promtool), command, "rules", str(file)]
    ran = subprocess.run(called, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.full
def test_promtool_reads_every_query_of_the_dashboard(tmp_path: Path) -> None:
    promtool = needed("promtool", "ensure-promtool")
    panels = json.loads(DASHBOARD.read_text())["panels"]
    queries = [target["expr"].replace("$queue", ".*") for panel in panels for target in panel["targets"]]
    rules = [{"record": f"query:{number}", "expr": query} for number, query in enumerate(queries)]
    (tmp_path / "queries.yml").write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))
    checked = [str(promtool), "check", "rules", "--lint=none", str(tmp_path / "queries.yml")]
    ran = subprocess.run(checked, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
