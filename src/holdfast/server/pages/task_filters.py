"""The filters of the list of tasks, as they are in the URL and in the form of a bulk action."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from urllib.parse import urlencode

from holdfast._engine.tasks import STATUSES, TaskFilter
from holdfast.settings.values import parse_duration

NAMES = ("search", "status", "queue", "type", "since", "error", "where")
MAX_LENGTH = 500


@dataclass(frozen=True, slots=True)
class TaskFilters:
    """The texts that were given, and the filter that they mean."""

    given: Mapping[str, str]
    matching: TaskFilter

    @property
    def query(self) -> dict[str, str]:
        return {name: value for name, value in self.given.items() if value}

    def link(self, **changes: str) -> str:
        """The query of the same list with these changes; an empty value removes a filter."""
        changed = {name: value for name, value in (self.query | changes).items() if value}
        return f"?{urlencode(changed)}" if changed else ""


def read_filters(value_of: Callable[[str], str], *, shows_values: bool) -> TaskFilters:
    """Without the right to see values, they can be neither searched nor guessed through a search."""
    given = {name: value_of(name).replace("\0", "").strip()[:MAX_LENGTH] for name in NAMES}
    if given["status"] not in STATUSES:
        given["status"] = ""
    if not shows_values:
        given["where"] = ""
    if len(given["error"]) != 32 or not set(given["error"]) <= set("0123456789abcdef"):  # noqa: PLR2004 - a hash
        given["error"] = ""
    since = _moment(given["since"])
    if since is None:
        given["since"] = ""
    matching = TaskFilter(
        given["status"] or None,
        given["queue"] or None,
        given["type"] or None,
        since,
        None,
        given["search"] or None,
        given["error"] or None,
        given["where"] or None,
        search_errors=shows_values,
    )
    return TaskFilters(given, matching)


def _moment(given: str) -> datetime | None:
    """A time, or a duration before now."""
    try:
        return datetime.now(UTC) - parse_duration(given)
    except (ValueError, OverflowError):
        pass
    try:
        return datetime.fromisoformat(given).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def parse_future(given: str) -> datetime | None:
    """A time, or a duration from now; None if it is neither."""
    try:
        ahead: timedelta = parse_duration(given)
        return datetime.now(UTC) + ahead
    except (ValueError, OverflowError):
        pass
    try:
        return datetime.fromisoformat(given).astimezone(UTC)
    except (ValueError, OverflowError):
        return None
