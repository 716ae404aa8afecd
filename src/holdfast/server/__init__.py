"""The HTTP API, waiting for results, and the dashboard, as one ASGI application."""

from typing import TYPE_CHECKING, Any

from holdfast.errors import ConfigurationError

if TYPE_CHECKING:
    from holdfast.server.application import create_app

__all__ = ["create_app"]


def __getattr__(name: str) -> Any:
    """Import the application on first use: FastAPI is an extra."""
    if name != "create_app":
        raise AttributeError(f"module 'holdfast.server' has no attribute {name!r}")
    try:
        from holdfast.server.application import create_app  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"holdfast.server needs {error.name}, which is not installed",
            hint="pip install 'holdfast-pg[web]'",
        ) from error
    return create_app
