"""The files of deploy/ call commands that there are, and give each service what it needs and no more."""

import re
import shlex
import subprocess
import sys
from importlib import import_module
from ipaddress import ip_network
from itertools import pairwise
from pathlib import Path
from shutil import which
from typing import Any

import psycopg
import pytest

from docs.test_blocks import wrong_call
from support.documents import DOCS, ROOT, code
from support.programs import needed, not_tested

DEPLOY = ROOT / "deploy"
SHOP = DEPLOY / "kubernetes" / "shop.yaml"
SCALED = DEPLOY / "kubernetes" / "keda" / "scaled-object.yaml"
UNITS = sorted((DEPLOY / "systemd").iterdir())
LINTERS = ROOT / "build" / "linters" / "bin"
HELM = ROOT / "build" / "helm" / "helm"
yaml: Any = import_module("yaml")  # comes with MkDocs, and has no types


def _composed() -> dict[str, Any]:
    return dict(yaml.safe_load((DEPLOY / "compose.yaml").read_text()))


def _pods() -> list[dict[str, Any]]:
    return [
        document["spec"]["template"]["spec"]
        for document in yaml.safe_load_all(SHOP.read_text())
        if "template" in document["spec"]
    ]


def _commands() -> list[str]:
    """Each command line of the image, the compose file, the manifests and the units."""
    found = [f"holdfast {' '.join(one)}" for one in _images_run()]
    for name, service in _composed()["services"].items():
        if name == "migrate":
            found += service["command"][0].splitlines()
        elif name != "database":
            found.append(shlex.join(["holdfast", *service["command"]]))
    for pod in _pods():
        [container] = pod["containers"]
        found.append(shlex.join([*container["command"], *container.get("args", ())]))
    for unit in UNITS:
        found += [
            f"holdfast {line}" for line in re.findall(r"(?m)^ExecStart=\S+/holdfast (.+)$", unit.read_text())
        ]
    return found


def _images_run() -> list[list[str]]:
    written = (DEPLOY / "Dockerfile").read_text()
    return [list(yaml.safe_load(line)) for line in re.findall(r"(?m)^CMD (\[.+\])$", written)]


def test_commands_exist() -> None:
    commands = _commands()
    assert [wrong_call(line) for line in commands] == [None] * len(commands)
    assert len(commands) == 2 + 4 + 3 + 4 + len(UNITS)


def test_each_service_of_the_compose_file_has_a_login_of_its_own() -> None:
    logins = {}
    for name, service in _composed()["services"].items():
        if name != "database":
            [logins[name]] = re.findall(r"//(\w+):\$\{(\w+)\}@", service["environment"]["DATABASE_URL"])
    assert logins == {
        "migrate": ("shop_migrate", "MIGRATE_PASSWORD"),
        "worker": ("shop_worker", "WORKER_PASSWORD"),
        "dispatcher": ("shop_dispatcher", "DISPATCHER_PASSWORD"),
        "web": ("shop_web", "WEB_PASSWORD"),
    }


def test_the_http_server_believes_one_address_about_those_of_clients() -> None:
    [network] = _composed()["networks"]["default"]["ipam"]["config"]
    believed = [
        after for line in _commands() for word, after in pairwise(line.split()) if word == "--behind-proxy"
    ]
    assert len(believed) == 3
    assert network["gateway"] in believed
    assert all(ip_network(address).num_addresses == 1 for address in believed)


def test_pods_have_no_rights_that_they_do_not_need() -> None:
    for pod in _pods():
        [container] = pod["containers"]
        assert pod["automountServiceAccountToken"] is False
        assert (pod["securityContext"]["runAsNonRoot"], pod["securityContext"]["runAsUser"]) == (True, 10001)
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }


def test_the_image_is_built_from_checked_packages_as_a_plain_user() -> None:
    written = (DEPLOY / "Dockerfile").read_text()
    assert re.findall(r"pip install (.*)$", written, re.MULTILINE) == [
        "--require-hashes --requirement requirements.txt",
        "--no-index --no-deps --no-build-isolation .",
    ]
    assert re.findall(r"^USER (\d+)$", written, re.MULTILINE) == ["10001"]


def test_the_query_that_scales_workers_is_one_that_a_reader_may_ask(tx: psycopg.Connection[Any]) -> None:
    tx.execute("select queues.enqueue(type => 'shop.greet', queue => 'default') from generate_series(1, 3)")
    tx.execute("select queues.enqueue(type => 'shop.greet', queue => 'paused')")
    tx.execute(
        "select queues.enqueue(type => 'shop.greet', queue => 'default', run_at => now() + interval '1 hour')"
    )
    tx.execute("select queues.pause('paused', reason => 'a test')")
    tx.execute("set local role holdfast_reader")
    scaled, _ = yaml.safe_load_all(SCALED.read_text())
    [trigger] = scaled["spec"]["triggers"]
    assert tx.execute(trigger["metadata"]["query"]).fetchone() == (3,)


def test_the_page_has_the_query_and_names_values_of_the_chart() -> None:
    page = (DOCS / "howto" / "deploy-on-kubernetes.md").read_text()
    [query], [values] = code(page, "sql"), code(page, "yaml")
    scaled, _ = yaml.safe_load_all(SCALED.read_text())
    assert query.split() == scaled["spec"]["triggers"][0]["metadata"]["query"].split()
    assert (
        _unknown(yaml.safe_load(values), yaml.safe_load((DEPLOY / "helm" / "values.yaml").read_text())) == []
    )


def _unknown(given: dict[str, Any], known: dict[str, Any]) -> list[str]:
    return [name for name in given if name not in known] + [
        f"{name}.{below}"
        for name, value in given.items()
        if isinstance(value, dict)
        for below in _unknown(value, known[name])
    ]


@pytest.mark.full
def test_the_manifests_are_what_the_chart_renders() -> None:
    scaled = ("--set", "worker.autoscaling.enabled=true", "--show-only", "templates/autoscaling.yaml")
    assert _helm("template", "shop") == SHOP.read_text()
    assert _helm("template", "shop", *scaled) == SCALED.read_text()


@pytest.mark.full
@pytest.mark.parametrize(
    "values",
    [
        [],
        ["application=", "migrate.enabled=false", "dispatch.enabled=false", "serve.enabled=false"],
        [
            "worker.autoscaling.enabled=true",
            "worker.queues={default,mail}",
            "env[0].name=A",
            "env[0].value=b",
        ],
    ],
    ids=["defaults", "worker alone", "scaled"],
)
def test_what_the_chart_renders_fits_the_schemas_of_kubernetes(values: list[str], tmp_path: Path) -> None:
    settings = [word for value in values for word in ("--set", value)]
    _helm("lint", "--strict", *settings)
    rendered = [
        document
        for document in yaml.safe_load_all(_helm("template", "shop", *settings))
        if document["apiVersion"] != "keda.sh/v1alpha1"  # Kubernetes does not know it
    ]
    file = tmp_path / "rendered.yaml"
    file.write_text(yaml.safe_dump_all(rendered))
    for version in ("1.31", "1.37"):
        _accepts(_linter("kubernetes-validate"), "--strict", "-k", version, file)


@pytest.mark.full
def test_kustomize_builds_the_manifests_with_and_without_keda(tmp_path: Path) -> None:
    kubectl = needed("kubectl", "ensure-kubectl")
    plain = list(yaml.safe_load_all(_accepts(kubectl, "kustomize", DEPLOY / "kubernetes")))
    overlay = {"resources": [str(DEPLOY / "kubernetes")], "components": [str(DEPLOY / "kubernetes" / "keda")]}
    relative = tmp_path / "overlay"
    relative.mkdir()
    root = Path(*[".."] * (len(relative.parts) - 1))
    overlay = {kind: [str(root / path[1:]) for path in paths] for kind, paths in overlay.items()}
    (relative / "kustomization.yaml").write_text(yaml.safe_dump(overlay))
    scaled = list(yaml.safe_load_all(_accepts(kubectl, "kustomize", relative)))

    def worker(documents: list[Any]) -> Any:
        [found] = [
            one
            for one in documents
            if (one["kind"], one["metadata"]["name"]) == ("Deployment", "shop-worker")
        ]
        return found["spec"]

    assert worker(plain)["replicas"] == 3
    assert "replicas" not in worker(scaled)
    assert len(scaled) == len(plain) + 2


@pytest.mark.full
def test_hadolint_has_no_objection() -> None:
    assert _accepts(_linter("hadolint"), DEPLOY / "Dockerfile") == ""


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_units_are_understood_by_systemd_and_leave_few_rights(unit: Path, tmp_path: Path) -> None:
    if which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not there")
    program = Path(sys.executable).with_name("holdfast")
    copy = tmp_path / unit.name
    copy.write_text(unit.read_text().replace("/srv/shop/.venv/bin/holdfast", str(program)))
    assert _accepts("systemd-analyze", "verify", "--man=no", copy) == ""
    _accepts("systemd-analyze", "security", "--offline=true", "--threshold=35", copy)


@pytest.mark.full
@pytest.mark.parametrize("value", ["worker.replica=1", "worker.concurrency=many", "serve.proxies=null"])
def test_the_chart_refuses_values_that_it_does_not_know_or_cannot_use(value: str) -> None:
    with pytest.raises(AssertionError, match="values don't meet the specifications of the schema"):
        _helm("template", "shop", "--set", value)


def _helm(command: str, *arguments: str) -> str:
    if not HELM.exists():
        not_tested("there is no Helm; tools/ensure-helm fetches it")
    return _accepts(HELM, command, *arguments[:1], DEPLOY / "helm", *arguments[1:])


def _linter(name: str) -> Path:
    if not (LINTERS / name).exists():
        not_tested(f"there is no {name}; tools/ensure-linters installs it")
    return LINTERS / name


def _accepts(program: str | Path, *arguments: str | Path) -> str:
    ran = subprocess.run([program, *arguments], capture_output=True, text=True, check=False, timeout=60)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout
