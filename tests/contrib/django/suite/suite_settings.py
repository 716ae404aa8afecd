"""Settings for Django's own tests/tasks, with our app installed and our backend as the default."""

import os

from psycopg.conninfo import conninfo_to_dict

_ADDRESS = conninfo_to_dict(os.environ["DATABASE_URL"])

SECRET_KEY = "of a test"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    *os.environ.get("SUITE_APPS", "").split(),
    "holdfast.contrib.django",
    "tasks",
]
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": _ADDRESS["dbname"],
        **{name.upper(): _ADDRESS.get(name) for name in ("user", "password", "host", "port")},
    }
}
TASKS = {"default": {"BACKEND": "holdfast.contrib.django.backend.HoldfastBackend", "QUEUES": []}}
