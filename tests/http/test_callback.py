"""Links by which a person answers a waiting run."""

import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
from pydantic import BaseModel

from holdfast import App, Context, SyncContext
from holdfast._workflows.callbacks import is_signed, open_callback, sign
from holdfast.errors import ConfigurationError, InvalidStep
from holdfast.handle import Handle
from holdfast.settings import Settings
from support.web import SECRET, TRUST, Web, serving
from support.worker_thread import working

app = App()
links: dict[int, str] = {}


class Decision(BaseModel):
    approved: bool
    by: str = "nobody"


async def send(order: int, url: str) -> None:
    links[order] = url


@app.task("links.ask")
async def ask(ctx: Context, order: int, ttl: float | None = None) -> str:
    url = await ctx.callback("approval", question=f"<b>Pay order {order}?</b>", ttl=ttl)
    await ctx.step(send, order, url)
    decision = await ctx.wait("approval", Decision)
    again = await ctx.callback("approval")
    assert url != again
    return f"approved={decision.approved}"


@app.task("links.ask_plainly")
def ask_plainly(ctx: SyncContext, order: int) -> str:
    links[order] = ctx.callback("vote", choices={"Yes": Decision(approved=True, by="ada"), "Nothing": None})
    return str(ctx.wait("vote", Decision | None))


@pytest.fixture(scope="module")
def running(web: Web) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOLDFAST_WEB_SECRET", SECRET)
        patch.setenv("HOLDFAST_WEB_URL", web.url)
        patch.setenv("DATABASE_URL", web.database.dsn)
        with working(app, web.database.dsn, worker_queues="links"):
            yield
    app.close()


@pytest.fixture
def person(web: Web) -> Iterator[httpx.Client]:
    """With a browser that has never been here."""
    with httpx.Client(headers={"Origin": web.url}, timeout=30, verify=TRUST) as client:
        yield client


@pytest.fixture
def order(running: None) -> int:
    return uuid4().int % 10**9


def waits(web: Web, handle: Handle[str]) -> str:
    """The link of a run that has sent it, and waits."""
    connection = web.database.connect()
    while (
        connection.execute(
            "select from queues.task_status where task_id = %s and status = 'suspended'", [handle.task_id]
        ).fetchone()
        is None
    ):
        connection.execute("select pg_sleep(0.02)")
    [order] = connection.execute(
        "select (payload->>'order')::integer from queues.task where task_id = %s", [handle.task_id]
    ).fetchone() or [0]
    return links[order]


def test_a_link_is_answered_once(web: Web, person: httpx.Client, order: int) -> None:
    handle = ask.enqueue(order=order)
    link = waits(web, handle)
    assert person.post(link, data={"choice": "1"}).status_code == 200
    again = person.post(link, data={"choice": "2"})
    assert (again.status_code, "Already answered" in again.text) == (409, True)
    assert handle.result(30) == "approved=True"
    assert person.get(link).status_code == 409


def test_of_answers_at_the_same_time_one_counts(web: Web, person: httpx.Client, order: int) -> None:
    handle = ask.enqueue(order=order)
    link = waits(web, handle)
    with ThreadPoolExecutor(4) as threads:
        choices = [{"choice": str(1 + number % 2)} for number in range(8)]
        answers = list(threads.map(lambda choice: person.post(link, data=choice).status_code, choices))
    assert sorted(answers) == [200, *[409] * 7]
    counted = "true" if answers.index(200) % 2 == 0 else "false"
    assert handle.result(30).lower() == f"approved={counted}"


def test_opening_a_link_changes_nothing(web: Web, person: httpx.Client, order: int) -> None:
    handle = ask.enqueue(order=order)
    link = waits(web, handle)
    shown = person.get(link)
    assert person.head(link).status_code == shown.status_code == 200
    assert f"&lt;b&gt;Pay order {order}?&lt;/b&gt;" in shown.text
    assert "script" not in shown.headers["Content-Security-Policy"]
    assert "<script" not in shown.text
    assert shown.headers["Cache-Control"] == "no-store"
    assert handle.info().status == "suspended"
    sent = web.database.connect().execute(
        "select count(*) from queues.signal where task_id = %s", [handle.task_id]
    )
    assert sent.fetchone() == (0,)


def test_the_page_names_the_application_and_says_until_when_it_can_be_answered(
    web: Web, person: httpx.Client, order: int
) -> None:
    link = waits(web, ask.enqueue(order=order, ttl=3600))
    shown = person.get(link).text
    assert "Please confirm · Holdfast" in shown
    assert "/static/icon.svg" in shown
    assert re.search(r'You can answer until <time datetime="20[^"]+">20', shown)
    with serving(web.database, web_name="Shop & Co") as own:
        named = person.get(own.url + link.removeprefix(web.url)).text
    assert "Please confirm · Shop &amp; Co" in named
    assert all(text not in named for text in ("Holdfast", "icon.svg"))


def test_a_plain_function_gets_a_link_with_its_own_choices(
    web: Web, person: httpx.Client, order: int
) -> None:
    handle = ask_plainly.enqueue(order=order)
    assert "Recorded" not in person.get(waits(web, handle)).text
    assert person.post(links[order], data={"choice": "1"}).status_code == 200
    assert handle.result(30) == "approved=True by='ada'"


def test_a_choice_of_nothing_is_an_answer(web: Web, person: httpx.Client, order: int) -> None:
    handle = ask_plainly.enqueue(order=order)
    assert person.post(waits(web, handle), data={"choice": "2"}).status_code == 200
    assert handle.result(30) == "None"


def test_a_link_ends_with_its_run(web: Web, person: httpx.Client, order: int) -> None:
    handle = ask.enqueue(order=order)
    link = waits(web, handle)
    handle.cancel("not wanted")
    assert person.get(link).status_code == 410
    assert person.post(link, data={"choice": "1"}).status_code == 410


def test_a_link_ends_with_its_time(web: Web, person: httpx.Client, order: int) -> None:
    handle = ask.enqueue(order=order, ttl=1)
    link = waits(web, handle)
    while person.get(link).status_code == httpx.codes.OK:
        web.database.connect().execute("select pg_sleep(0.02)")
    assert "Too late" in person.get(link).text
    assert person.post(link, data={"choice": "1"}).status_code == 410
    assert handle.info().status == "suspended"


@pytest.mark.parametrize("choice", ["", "0", "3", "-1", "1.0", "one", "1e0", "٣", "99999999999999999999"])
def test_a_strange_choice_is_refused(web: Web, person: httpx.Client, order: int, choice: str) -> None:
    link = waits(web, ask.enqueue(order=order))
    assert person.post(link, data={"choice": choice}).status_code == 400
    assert person.get(link).status_code == 200


def test_a_link_with_another_signature_run_or_number_is_unknown(
    web: Web, person: httpx.Client, order: int
) -> None:
    link = waits(web, ask.enqueue(order=order))
    base, _, rest = link.partition("/callbacks/")
    task_id, _, end = rest.partition("/")
    number, _, signature = end.partition("?signature=")
    other = "A" if signature[0] != "A" else "B"
    for changed in (
        f"{base}/callbacks/{task_id}/{number}",
        f"{base}/callbacks/{task_id}/{number}?signature={other}{signature[1:]}",
        f"{base}/callbacks/{uuid4()}/{number}?signature={signature}",
        f"{base}/callbacks/no-uuid/{number}?signature={signature}",
        f"{base}/callbacks/{task_id}/{'x' * 22}?signature={signature}",
        f"{base}/callbacks/{task_id}/{'x' * 22}?signature={sign(SECRET, UUID(task_id), 'x' * 22)}",
    ):
        assert person.get(changed).status_code == 404, changed
        assert person.post(changed, data={"choice": "1"}).status_code == 404, changed


def test_a_page_of_another_origin_cannot_answer(web: Web, person: httpx.Client, order: int) -> None:
    link = waits(web, ask.enqueue(order=order))
    for origin in ("https://evil.example", "null"):
        assert person.post(link, data={"choice": "1"}, headers={"Origin": origin}).status_code == 403
    assert person.get(link).status_code == 200


def test_an_older_secret_is_accepted_and_a_wait_ticket_is_no_signature() -> None:
    task_id, link = uuid4(), "x" * 22
    assert is_signed(["new", "old"], task_id, link, sign("old", task_id, link))
    assert not is_signed(["new"], task_id, link, sign("old", task_id, link))
    assert not is_signed([], task_id, link, sign("old", task_id, link))


class NoRun:
    @property
    def steps(self) -> Any:
        return self

    def step(self, *_: object, **__: object) -> None:
        raise AssertionError("nothing is recorded")

    def settings(self) -> Settings:
        return Settings.load()

    def now(self) -> float:
        return 0.0


class OneStep(NoRun):
    def step(self, function: Callable[[], object], *_: object, **__: object) -> object:  # type: ignore[override]
        return function()


def test_a_link_begins_with_the_public_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_WEB_SECRET", SECRET)
    monkeypatch.setenv("HOLDFAST_WEB_URL", "https://www.example.com/holdfast")
    task_id = uuid4()
    link = open_callback(OneStep(), task_id, "approval", question=None, choices=None, ttl=None)
    assert link.startswith(f"https://www.example.com/holdfast/callbacks/{task_id}/")


def test_without_a_secret_a_callback_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOLDFAST_WEB_SECRET", raising=False)
    with pytest.raises(ConfigurationError, match="HOLDFAST_WEB_SECRET"):
        open_callback(NoRun(), uuid4(), "approval", question=None, choices=None, ttl=None)


@pytest.mark.parametrize(
    "wrong",
    [
        {"choices": {}},
        {"choices": {"": 1}},
        {"choices": {"Yes": object()}},
        {"choices": {str(number): number for number in range(11)}},
        {"question": "x" * 501},
        {"ttl": 0},
        {"ttl": timedelta(days=400)},
    ],
)
def test_a_callback_that_cannot_be_shown_is_refused(
    monkeypatch: pytest.MonkeyPatch, wrong: dict[str, object]
) -> None:
    monkeypatch.setenv("HOLDFAST_WEB_SECRET", SECRET)
    monkeypatch.setenv("HOLDFAST_WEB_URL", "https://tasks.example.com")
    options: dict[str, object] = {"question": None, "choices": None, "ttl": None}
    with pytest.raises(InvalidStep):
        open_callback(NoRun(), uuid4(), "approval", **(options | wrong))  # type: ignore[arg-type]
