"""The configuration of the Django app."""

from typing import Any

from django.apps import AppConfig
from django.core.checks import Tags, register
from django.db.models.signals import post_migrate
from django.utils.module_loading import autodiscover_modules

from holdfast.contrib.django.conf import provided_settings, read_conf
from holdfast.settings import provide_settings


class HoldfastConfig(AppConfig):
    name = "holdfast.contrib.django"
    label = "holdfast"
    verbose_name = "Holdfast"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from holdfast.contrib.django import checks  # noqa: PLC0415 - Django's apps have to be loaded

        provide_settings(provided_settings)
        register(checks.check_settings)
        register(checks.check_apps)
        register(checks.check_schema, Tags.database)
        post_migrate.connect(_install_schema, sender=self)
        autodiscover_modules(*read_conf().autodiscover)


def _install_schema(using: str, verbosity: int = 1, plan: Any = None, **_: Any) -> None:
    """Bring the schema to this release: `migrate` applies a Django migration only once, this every time.

    `flush`, after each test that commits, sends the signal without a plan.
    """
    if plan is None:
        return
    from holdfast.contrib.django.schema import install_schema  # noqa: PLC0415 - as above

    install_schema(using, echo=print if verbosity >= 2 else None)  # noqa: PLR2004 - Django's levels
