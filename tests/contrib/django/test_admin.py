"""The admin section: lists, actions, and what each permission shows."""

from collections.abc import Callable
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client, override_settings

from support.database import Database

LIST = "/admin/holdfast/task/"


@pytest.fixture
def login(django: Any) -> Callable[..., Client]:
    """A client of a member of staff who has these permissions."""
    from django.contrib.auth.models import Permission, User

    call_command("migrate", verbosity=0)

    def log_in(*permissions: str) -> Client:
        user = User.objects.create_user("ada", is_staff=True)
        user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
        client = Client()
        client.force_login(user)
        return client

    return log_in


def enqueue(**options: Any) -> Any:
    from support.django_app.tasks import double

    return double.using(**options).enqueue(21)


def act(client: Client, action: str, *handles: Any) -> str:
    chosen = {"action": action, "_selected_action": [str(one.task_id) for one in handles]}
    answered = client.post(LIST, chosen, follow=True)
    assert answered.status_code == 200
    return str(answered.content.decode())


def test_the_lists_can_be_read(login: Callable[..., Client]) -> None:
    client = login("view_task", "view_schedule", "view_queue", "view_worker")
    handle = enqueue()
    assert str(handle.task_id) in client.get(LIST).content.decode()
    for name in ("schedule", "queue", "worker"):
        assert client.get(f"/admin/holdfast/{name}/").status_code == 200
    assert "shop" in client.get("/admin/holdfast/queue/").content.decode()


def test_nothing_can_be_added_changed_or_deleted(login: Callable[..., Client]) -> None:
    client = login("view_task", "operate_task")
    place = f"{LIST}{enqueue().task_id}"
    assert client.get(f"{LIST}add/").status_code == 403
    assert client.get(f"{place}/delete/").status_code == 403
    assert client.post(f"{place}/change/", {"type": "other"}).status_code == 403


def test_filters_and_search_ask_the_engine(login: Callable[..., Client]) -> None:
    client = login("view_task")
    first, second = enqueue(), enqueue(queue="slow")
    first.cancel()

    def shown(query: str) -> list[bool]:
        page = client.get(f"{LIST}?{query}").content.decode()
        return [str(one.task_id) in page for one in (first, second)]

    assert shown("") == [True, True]
    assert shown("status=cancelled") == [True, False]
    assert shown("queue=slow") == [False, True]
    assert shown(f"q={second.task_id}") == [False, True]
    assert shown("status=nonsense") == [True, True]


def test_the_list_is_bounded(login: Callable[..., Client], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.contrib.django.admin.NEWEST", 2)
    client = login("view_task")
    handles = [enqueue() for _ in range(3)]
    page = client.get(LIST).content.decode()
    assert [str(one.task_id) in page for one in handles] == [False, True, True]
    assert client.get(f"{LIST}{handles[0].task_id}/change/").status_code == 200


def test_cancel_and_retry_are_actions_and_record_who_acted(
    login: Callable[..., Client], db: Database
) -> None:
    client = login("view_task", "operate_task")
    first, second = enqueue(), enqueue()
    assert "2 tasks were cancelled." in act(client, "cancel", first, second)
    assert first.status() == "cancelled"
    assert "1 task was retried." in act(client, "retry", first)
    assert first.status() == "pending"
    assert "cannot be retried: it is pending" in act(client, "retry", first)
    acts = db.connect().execute("select distinct actor, reason from queues.act").fetchall()
    assert acts == [("postgres for Django user ada", "in Django's admin")]


def test_actions_need_their_own_permission(login: Callable[..., Client]) -> None:
    client = login("view_task")
    handle = enqueue()
    assert "Cancel the selected" not in client.get(LIST).content.decode()
    act(client, "cancel", handle)
    assert handle.status() == "pending"


def test_arguments_and_results_need_their_own_permission(login: Callable[..., Client]) -> None:
    client = login("view_task")
    place = f"{LIST}{enqueue().task_id}/change/"
    assert "number" not in client.get(place).content.decode().partition("readonly")[2]
    from django.contrib.auth.models import Permission, User

    User.objects.get().user_permissions.add(Permission.objects.get(codename="view_payload"))
    assert "&quot;number&quot;: 21" in client.get(place).content.decode()


def test_a_task_links_to_the_dashboard(login: Callable[..., Client]) -> None:
    client = login("view_task")
    handle = enqueue()
    place = f"{LIST}{handle.task_id}/change/"
    assert "dashboard" not in client.get(place).content.decode()
    with override_settings(HOLDFAST={"DASHBOARD_URL": "https://shop.example/holdfast/"}):
        pages = [client.get(one).content.decode() for one in (place, LIST)]
    for page in pages:
        assert f'href="https://shop.example/holdfast/tasks/{handle.task_id}"' in page


@pytest.mark.parametrize("given", ["not-a-uuid", "00000000-0000-7000-8000-000000000000"])
def test_a_task_that_does_not_exist_leads_back(login: Callable[..., Client], given: str) -> None:
    assert login("view_task").get(f"{LIST}{given}/change/").status_code == 302
