"""Loads the application that a command names as MODULE:APP."""

import os
import sys
from importlib import import_module
from types import ModuleType
from typing import Annotated, Any

import typer

from holdfast._worker.app_import import DJANGO_SETTINGS, set_up_django
from holdfast.app import App
from holdfast.errors import ConfigurationError

Application = Annotated[str, typer.Argument(metavar="MODULE:APP", help="The application: shop.tasks:app")]


def load_app(given: str) -> App:
    """Import an application. Modules of the working directory can be imported, as with `python -m`."""
    module_name, _, path = given.partition(":")
    if not module_name or not path:
        raise ConfigurationError(
            f"{given!r} is not an application", hint="Use MODULE:APP, such as shop.tasks:app."
        )
    if "" not in sys.path and "." not in sys.path:
        sys.path.insert(0, "")
    set_up_django()
    module = _import(module_name)
    found = _find(module, path)
    if not isinstance(found, App):
        kind = type(found).__name__
        raise ConfigurationError(f"{given} is a {kind}, not an App", hint=_suggest(module))
    found.origin = given
    return found


def _import(name: str) -> ModuleType:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        # A module that the application itself cannot import is reported with its traceback.
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        raise ConfigurationError(
            f"there is no module {name!r}", hint="Modules are searched in the working directory and sys.path."
        ) from None
    except Exception as error:
        if type(error).__module__ != "django.core.exceptions" or os.environ.get(DJANGO_SETTINGS):
            raise
        raise ConfigurationError(
            f"{name} uses Django, which is not set up: {type(error).__name__}",
            hint=f"Set {DJANGO_SETTINGS}, such as shop.settings, or run python manage.py holdfast worker.",
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
    return f"Did you mean {known}?" if apps else f"{module.__name__} defines no App."
