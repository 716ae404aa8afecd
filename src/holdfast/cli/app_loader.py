"""The application that a command is about, named as MODULE:APP."""

import sys
from importlib import import_module
from types import ModuleType
from typing import Annotated, Any

import typer

from holdfast.app import App
from holdfast.errors import ConfigurationError

Application = Annotated[
    str, typer.Argument(metavar="MODULE:APP", help="Where the application is: shop.tasks:app")
]


def load_app(given: str) -> App:
    """Import it. The working directory counts, as it does for `python -m`."""
    module_name, _, path = given.partition(":")
    if not module_name or not path:
        raise ConfigurationError(
            f"{given!r} does not name an application", hint="Write MODULE:APP, such as shop.tasks:app."
        )
    if "" not in sys.path and "." not in sys.path:
        sys.path.insert(0, "")
    module = _import(module_name)
    found = _find(module, path)
    if not isinstance(found, App):
        kind = type(found).__name__
        raise ConfigurationError(f"{given} is of the type {kind}, not App", hint=_suggest(module))
    found.origin = given
    return found


def _import(name: str) -> ModuleType:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        # One that the application itself misses is told with the traceback that shows where.
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        raise ConfigurationError(
            f"there is no module {name!r}", hint="It is looked for in the working directory and in sys.path."
        ) from None


def _find(module: ModuleType, path: str) -> Any:
    found: Any = module
    for name in path.split("."):
        try:
            found = getattr(found, name)
        except AttributeError:
            raise ConfigurationError(
                f"module {module.__name__} has no {path!r}", hint=_suggest(module)
            ) from None
    return found


def _suggest(module: ModuleType) -> str:
    apps = [name for name, value in vars(module).items() if isinstance(value, App)]
    known = " or ".join(f"{module.__name__}:{name}" for name in apps)
    return f"It has {known}." if apps else "It has no App at all."
