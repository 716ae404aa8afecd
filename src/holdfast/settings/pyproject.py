"""The settings in pyproject.toml."""

from pathlib import Path
from typing import Any

from holdfast.errors import ConfigurationError


def read_pyproject() -> dict[str, Any]:
    """Read `[tool.holdfast]` in the working directory. Empty if there is no such file."""
    try:
        text = Path("pyproject.toml").read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"pyproject.toml cannot be read: {error}") from None
    import tomllib  # noqa: PLC0415 - not needed where there is no such file

    try:
        table = tomllib.loads(text).get("tool", {}).get("holdfast", {})
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"pyproject.toml cannot be read: {error}") from None
    if not isinstance(table, dict):
        raise ConfigurationError(f"pyproject.toml: [tool.holdfast] must be a table, not {table!r}")
    return table
