"""The page Errors: groups of errors by type and by message without values, with their trend."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from fastapi import APIRouter

from holdfast._engine import AsyncEngine, error_groups, workers
from holdfast._engine.error_groups import ErrorGroup
from holdfast.server.api.error_groups import hide_group
from holdfast.server.pages.page import Page, add_page
from holdfast.server.pages.page_request import PageRequest

router = APIRouter(include_in_schema=False)

WINDOWS = {
    "1h": ("1 hour", timedelta(hours=1)),
    "1d": ("1 day", timedelta(days=1)),
    "7d": ("7 days", timedelta(days=7)),
    "30d": ("30 days", timedelta(days=30)),
}
SINCE_START = "start"
MAX_GROUPS = 100
_HEIGHT = 20


async def load(request: PageRequest) -> Mapping[str, Any]:
    window = request.query("window")
    type_prefix = request.query("type")[:200].replace("\0", "")

    async def read(engine: AsyncEngine) -> tuple[list[ErrorGroup], datetime | None, datetime | None]:
        live = [one.started_at for one in await engine.run(workers.worker_status()) if one.live]
        deployed = min(live, default=None)
        if window in WINDOWS or (window == SINCE_START and deployed is None) or not window:
            since = None if window not in WINDOWS else datetime.now(UTC) - WINDOWS[window][1]
        else:
            since = deployed
        found = await engine.run(
            error_groups.list_error_groups(since, type_prefix or None, max_groups=MAX_GROUPS)
        )
        return found, deployed, since

    groups, deployed, since = await request.site.read(read)
    shown = groups if request.shows_values else [hide_group(group) for group in groups]
    most = max(groups, key=lambda group: group.type_errors, default=None)
    return {
        "groups": [(group, bars(group.trend)) for group in shown],
        "most": most,
        "counted_since": most.counted_since if most else None,
        "type": type_prefix,
        "deployed": deployed,
        "since": since,
        "window": window if window in WINDOWS or (window == SINCE_START and deployed) else "1d",
        "windows": {name: words for name, (words, _) in WINDOWS.items()},
    }


def bars(trend: list[int]) -> list[tuple[int, int]]:
    """Position and height of each bar of a small chart. A bar that counts something is visible."""
    top = max([*trend, 1])
    return [(n, max(2, round(count / top * _HEIGHT))) for n, count in enumerate(trend) if count]


add_page(router, "/errors", Page("errors.html", "/errors", load))
