"""Django in one file: an order and the task that ships it belong to one ORM transaction.

Run it so:

    holdfast worker django_shop:tasks
    python django_shop.py runserver
    curl -X POST 'localhost:8000/orders?item=lamp'
"""

import os
import sys

import django
from django.conf import settings
from django.core.management import execute_from_command_line
from django.db import close_old_connections, connection, models, transaction
from django.http import HttpRequest, JsonResponse
from django.urls import path
from psycopg.conninfo import conninfo_to_dict

from holdfast import App

address = conninfo_to_dict(os.environ["DATABASE_URL"])
settings.configure(
    SECRET_KEY="only for this example",
    ALLOWED_HOSTS=["*"],
    ROOT_URLCONF=__name__,
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": address.get("dbname"),
            **{name.upper(): address.get(name) for name in ("user", "password", "host", "port")},
        }
    },
)
django.setup()

tasks = App()


class Order(models.Model):
    item = models.CharField(max_length=100)
    shipped = models.BooleanField(default=False)

    class Meta:
        app_label = "django_shop"


@tasks.task("shop.ship")
def ship(order_id: int) -> str:
    close_old_connections()  # a worker lives longer than a request
    order = Order.objects.get(pk=order_id)
    order.shipped = True
    order.save()
    return f"{order.item} is on its way"


def place_order(request: HttpRequest) -> JsonResponse:
    with transaction.atomic():
        order = Order.objects.create(item=request.GET["item"])
        handle = ship.using(tx="default").enqueue(order.pk)  # the alias of the database, or its connection
    return JsonResponse({"order": order.pk, "shipping": handle.result(timeout=20)})


urlpatterns = [path("orders", place_order)]


def create_tables() -> None:
    """What migrations do in a project that has more than one file."""
    if Order._meta.db_table not in connection.introspection.table_names():
        with connection.schema_editor() as editor:
            editor.create_model(Order)


if __name__ == "__main__":
    create_tables()
    execute_from_command_line(sys.argv)
