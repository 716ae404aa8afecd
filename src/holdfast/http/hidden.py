"""Documents with their values left out: what shape they have, and not what they say."""

from typing import Any

MOST_MEMBERS = 200
MOST_LEVELS = 8


def hide(value: Any, level: int = 0) -> Any:
    """Names and sizes stay, values go."""
    if isinstance(value, dict | list) and level >= MOST_LEVELS:
        return "(hidden)"
    if isinstance(value, dict):
        shown = {str(name): hide(member, level + 1) for name, member in list(value.items())[:MOST_MEMBERS]}
        return shown if len(value) <= MOST_MEMBERS else shown | {"…": f"{len(value)} members in all"}
    if isinstance(value, list):
        first = [hide(member, level + 1) for member in value[:1]]
        return first if len(value) <= 1 else [*first, f"… {len(value)} elements in all"]
    return None if value is None else f"(hidden: {_kind(value)})"


def _kind(value: Any) -> str:
    match value:
        case bool():
            return "true or false"
        case str():
            return f"text of {len(value)} characters"
    return "number"
