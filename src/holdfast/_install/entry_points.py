"""Finds what installed packages add, ours too, by the entry points that they declare.

Nothing is imported before it is chosen: most of it needs a library that not every program has.
"""

from importlib.metadata import EntryPoint, entry_points
from typing import Any

from holdfast.errors import ConfigurationError

EXECUTORS = "holdfast.executors"
SINKS = "holdfast.sinks"
EMAIL_PROVIDERS = "holdfast.email_providers"
SMS_PROVIDERS = "holdfast.sms_providers"

OURS = "holdfast-pg"


def installed(group: str) -> dict[str, EntryPoint]:
    """What packages add to one of these groups, by name. No package can replace what is ours."""
    points = sorted(entry_points(group=group), key=_is_ours)
    found = {point.name: point for point in points}
    if not any(map(_is_ours, points)):
        raise ConfigurationError(
            f"{OURS} is not installed as its pyproject.toml says: it has no entry points of {group}",
            hint="Install it again. In a checkout: .venv/bin/pip install --no-deps --no-build-isolation -e .",
        )
    return found


def load(point: EntryPoint, what: str) -> Any:
    """Import what the entry point names. Raises ConfigurationError if a package that it needs is missing."""
    try:
        return point.load()
    except ModuleNotFoundError as error:
        package = OURS if point.dist is None else point.dist.name
        extra = f"[{','.join(point.extras)}]" if point.extras else ""
        raise ConfigurationError(
            f"the {what} {point.name} needs the package {error.name}",
            hint=f"Run pip install '{package}{extra}'.",
        ) from None
    except (ImportError, AttributeError) as error:
        raise ConfigurationError(f"the {what} {point.name} cannot be imported: {error}") from error


def _is_ours(point: EntryPoint) -> bool:
    return point.dist is not None and point.dist.name == OURS
