"""System checks: what would make the first task fail, found by `manage.py check`."""

import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Any

from django.apps import apps
from django.core.checks import CheckMessage, Error, Warning  # noqa: A004 - Django's names
from django.core.exceptions import ImproperlyConfigured
from django.db import connections

from holdfast._connections.transaction import run_in
from holdfast._engine import health
from holdfast.app import App
from holdfast.contrib.django.app import DjangoApp
from holdfast.contrib.django.client import INSTALL
from holdfast.contrib.django.conf import DEFAULT_APP, dsn_of, provided_settings, read_conf, unknown_keys
from holdfast.errors import ConfigurationError, HoldfastError, NotInstalled
from holdfast.settings import Settings


def check_settings(**_: Any) -> Iterable[CheckMessage]:
    """Check HOLDFAST and the engine of its database. Connects to nothing."""
    try:
        if problems := unknown_keys():
            yield from (Error(problem, id="holdfast.E001") for problem in problems)
            return
        dsn_of(read_conf().database)
        Settings.load(**provided_settings())
    except ImproperlyConfigured as error:
        yield Error(str(error), hint="Tasks need a database of PostgreSQL.", id="holdfast.E002")
    except ConfigurationError as error:
        yield Error(f"settings.HOLDFAST cannot be used: {error.message}", hint=error.hint, id="holdfast.E001")


def check_apps(**_: Any) -> Iterable[CheckMessage]:
    """Check that HOLDFAST["APP"] is an application, and that no other has tasks that no worker would run."""
    named = read_conf().app
    try:
        chosen = find_app(named)
    except ConfigurationError as error:
        yield Error(f"HOLDFAST['APP'] cannot be used: {error.message}", hint=error.hint, id="holdfast.E003")
        return
    if not isinstance(chosen, DjangoApp):
        yield Warning(
            f"{named} is an App, which does not use Django's connection: "
            "its tasks are enqueued although a transaction is rolled back.",
            hint="Make it a DjangoApp: from holdfast.contrib.django import DjangoApp.",
            id="holdfast.W001",
        )
    for place, other in sorted(_other_apps(chosen).items()):
        yield Warning(
            f"{place} is a second application: manage.py holdfast worker does not run its "
            f"{len(other.handlers)} tasks, because it runs {named}.",
            hint=f"Use one application for all tasks, such as {DEFAULT_APP}, or start a worker for each: "
            f"manage.py holdfast worker {place}",
            id="holdfast.W002",
        )


def check_schema(databases: Sequence[str] | None = None, **_: Any) -> Iterable[CheckMessage]:
    """Check that the schema is installed, with `manage.py check --database default`."""
    alias = read_conf().database
    if alias not in (databases or ()) or connections[alias].vendor != "postgresql":
        return
    try:
        run_in(alias, health.clock(), "check")
    except NotInstalled:
        yield Warning(
            f"The schema of Holdfast is not installed in the database {alias!r}.",
            hint=INSTALL,
            id="holdfast.W003",
        )
    except HoldfastError as error:
        yield Warning(
            f"Holdfast cannot use the database {alias!r}: {error.message}",
            hint=error.hint,
            id="holdfast.W004",
        )


def find_app(named: str) -> App:
    """The application that MODULE:APP names."""
    module_name, _, path = str(named).partition(":")
    if not path:
        raise ConfigurationError(f"{named!r} is not an application", hint="Use MODULE:APP: shop.tasks:app.")
    try:
        found: Any = import_module(module_name)
        for name in path.split("."):
            found = getattr(found, name)
    except (ModuleNotFoundError, AttributeError) as error:
        raise ConfigurationError(
            f"{named!r} was not found: {error}", hint="Use MODULE:APP: shop.tasks:app."
        ) from None
    if not isinstance(found, App):
        raise ConfigurationError(f"{named} is a {type(found).__name__}, not an App")
    return found


def _other_apps(chosen: App) -> dict[str, App]:
    """Applications with tasks in the loaded modules of installed apps, other than the chosen one."""
    found: dict[int, tuple[str, App]] = {}
    packages = tuple(f"{config.name}." for config in apps.get_app_configs())
    for module_name, module in list(sys.modules.items()):
        if not f"{module_name}.".startswith(packages):
            continue
        for name, value in list(getattr(module, "__dict__", {}).items()):
            # isinstance would ask lazy objects of Django for their class, which loads them.
            if issubclass(type(value), App) and value is not chosen and value.handlers:
                found.setdefault(id(value), (f"{module_name}:{name}", value))
    return dict(found.values())
