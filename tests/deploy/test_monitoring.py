"""The alerts and the dashboard of deploy/ name only metrics that there are, and Prometheus reads them."""

import json
import re
import subprocess
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from holdfast._worker.metrics import Collector, Metrics
from holdfast.server.probes import _QUEUE_GAUGES, GaugeCollector, _worker_gauges
from support.documents import ROOT
from support.programs import needed

RULES = ROOT / "deploy" / "prometheus" / "alerts.yml"
DASHBOARD = ROOT / "deploy" / "grafana" / "holdfast.json"
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
