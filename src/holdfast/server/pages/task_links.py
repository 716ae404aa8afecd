"""Where the page of a task links to: what the task belongs to, and its trace and log lines elsewhere."""

import re
from collections.abc import Mapping
from urllib.parse import quote, urlencode

from holdfast._engine.steps import RelatedThing
from holdfast._engine.tasks import TaskStatus
from holdfast.server.site import SiteOptions

_TRACEPARENT = re.compile(r"[0-9a-f]{2}-(?P<trace_id>(?!0{32})[0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")


def related_link(thing: RelatedThing, namespace: str) -> str:
    """The path of the page that shows it. A schedule has the namespace of its tasks."""
    if thing.relation == "schedule":
        return f"/schedules/show?{urlencode({'name': thing.name or '', 'namespace': namespace})}"
    if thing.relation == "process":
        return f"/processes/{quote(thing.name or '', safe='')}/{thing.process_id}"
    return f"/tasks/{thing.related_id}"


def outside_links(task: TaskStatus, options: SiteOptions) -> dict[str, str]:
    """Addresses of the trace and of the log lines, as the settings say where these are."""
    links = {}
    trace_id = trace_of(task.metadata)
    if options.trace_url and trace_id:
        links["Trace"] = options.trace_url.replace("{trace_id}", trace_id)
    if options.log_url:
        links["Log"] = options.log_url.replace("{task_id}", str(task.task_id))
    return links


def trace_of(metadata: object) -> str | None:
    """The trace that was stored with the task. It is no value: it is shown where these are hidden, too."""
    given = metadata.get("traceparent") if isinstance(metadata, Mapping) else None
    found = _TRACEPARENT.fullmatch(given) if isinstance(given, str) else None
    return found["trace_id"] if found else None
