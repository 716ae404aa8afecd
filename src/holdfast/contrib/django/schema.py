"""Installs the engine's schema in a database of Django."""

from collections.abc import Callable

from django.core.management import CommandError

from holdfast._install.schema import Choice, migrate
from holdfast.contrib.django.conf import dsn_of, read_conf
from holdfast.errors import HoldfastError
from holdfast.settings import Settings


def install_schema(alias: str, echo: Callable[[str], object] | None = None) -> None:
    """Install or upgrade it, unless tasks are stored in another database or MIGRATE is False.

    On a connection of its own: it may have to wait for locks and try again, which a migration of Django
    cannot.
    """
    conf = read_conf()
    if alias != conf.database or not conf.migrate:
        return
    try:
        settings = Settings.load()
        done = migrate(dsn_of(alias), single_login=settings.single_login, choice=Choice.of(settings))
    except HoldfastError as error:
        raise CommandError(
            f"The schema of Holdfast could not be installed in the database {alias!r}: {error}\n"
            "If an administrator installs it (python manage.py holdfast migrate --sql prints it), "
            'set HOLDFAST["MIGRATE"] to False.'
        ) from error
    if echo is not None:
        echo(f"  Holdfast: {done}")
