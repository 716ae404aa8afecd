"""Holdfast in a Django project: add "holdfast.contrib.django" to INSTALLED_APPS.

from holdfast.contrib.django import app

@app.task("shop.ship")
def ship(order_id: int) -> None: ...
"""

from holdfast.contrib.django.app import DjangoApp

__all__ = ["DjangoApp", "app"]

app = DjangoApp()
"""The tasks of the project. Its database, its settings and its name come from Django's settings."""
