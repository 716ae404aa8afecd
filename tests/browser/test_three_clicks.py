"""Questions of an operator, each answered in at most three clicks from the overview."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from holdfast._engine import tasks
from holdfast._engine.tasks import TaskFilter
from holdfast._install.postgres.embedded_server import EmbeddedServer
from support.accessibility import serious
from support.database import cloned_database
from support.shop_hour import DECLINED, ShopHour, run_order
from support.web import Web, serving

pytestmark = pytest.mark.full


@contextmanager
def opened_shop(server: EmbeddedServer, template: str) -> Iterator[Web]:
    with cloned_database(server, template) as database:
        ShopHour(database.connect()).fill()
        run_order(database.dsn)
        with serving(database, asks_for_login=False, web_values="shown") as running:
            yield running


@pytest.fixture(scope="module")
def shop(server: EmbeddedServer, template: str) -> Iterator[Web]:
    with opened_shop(server, template) as running:
        yield running


class Person:
    """Begins at the overview, and clicks at most three times."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.clicks = 0
        page.goto("/")
        expect(page.get_by_role("heading", level=1, name="Overview")).to_be_visible()

    def click(self, what: Locator) -> None:
        self.clicks += 1
        assert self.clicks <= 3
        what.click()


@contextmanager
def in_new_york(browser: Browser, shop: Web) -> Iterator[Person]:
    context = browser.new_context(base_url=shop.url, timezone_id="America/New_York", locale="en-GB")
    yield Person(context.new_page())
    context.close()


@pytest.fixture
def person(browser: Browser, shop: Web) -> Iterator[Person]:
    with in_new_york(browser, shop) as somebody:
        yield somebody


def test_which_type_fails_most_since_the_deploy_and_with_which_error(person: Person) -> None:
    page = person.page
    person.click(page.get_by_role("link", name="Errors", exact=True))
    person.click(page.get_by_role("link", name="since the deploy"))
    expect(page.get_by_text("billing.charge fails most")).to_be_visible()
    first = page.locator(".errors tbody tr").first
    expect(first).to_contain_text("card # of order # was declined")
    expect(first).to_contain_text(str(DECLINED))


def test_why_order_7_waits(person: Person) -> None:
    page = person.page
    person.click(page.get_by_role("link", name="Tasks", exact=True))
    page.get_by_label("Search").fill("order-7")
    person.click(page.get_by_role("button", name="Search"))
    person.click(page.get_by_role("link", name="orders.fulfil"))
    expect(page.get_by_text("It waits for the signal approval until")).to_be_visible()


def test_what_worker_w3_does_now(person: Person) -> None:
    page = person.page
    person.click(page.get_by_role("link", name="Workers", exact=True))
    person.click(page.get_by_role("link", name="w3", exact=True))
    running = page.get_by_role("link", name="media.resize")
    expect(running).to_have_count(3)


def test_when_the_nightly_report_runs_next_in_berlin(person: Person) -> None:
    page = person.page
    row = page.get_by_role("row").filter(has_text="nightly-report")
    expect(row).to_contain_text("02:00 Europe/Berlin")
    person.click(row.get_by_role("link", name="nightly-report"))
    expect(page.get_by_role("heading", level=1, name="nightly-report")).to_be_visible()


def test_the_numbers_of_the_overview_are_those_of_the_lists(person: Person, shop: Web) -> None:
    page = person.page
    tile = page.get_by_role("link", name="Dead letters")
    expect(tile).to_contain_text(str(DECLINED))
    due = page.get_by_role("link", name="Due").locator("b").inner_text()
    backlog = page.locator("figure", has_text="Backlog")
    expect(backlog.locator(".legend", has_text="due").locator("b").first).to_have_text(due)
    person.click(tile)
    expect(page.get_by_role("link", name=f"dead letter {DECLINED}")).to_be_visible()
    found = shop.engine.run(tasks.find_tasks(TaskFilter("dead_letter"), None, 1000))
    assert len(found.task_ids) == DECLINED


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 1280), ("light", 375)])
def test_its_pages_are_accessible_and_nothing_sticks_out(
    browser: Browser, shop: Web, axe: str, scheme: str, width: int
) -> None:
    page = browser.new_page(
        base_url=shop.url,
        color_scheme=scheme,  # type: ignore[arg-type]  # light or dark
        viewport={"width": width, "height": 900},
    )
    order = shop.engine.run(tasks.find_tasks(TaskFilter(words="order-7"), None, 1)).task_ids[0]
    found = []
    for path in ("/", "/tasks", "/errors?window=start", f"/tasks/{order}"):
        page.goto(path)
        assert page.evaluate(
            "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
        ), path
        found += serious(page, axe)
    page.close()
    assert found == []


def test_all_dead_letters_of_one_error_are_retried_with_one_reason(
    browser: Browser, server: EmbeddedServer, template: str
) -> None:
    with opened_shop(server, template) as shop, in_new_york(browser, shop) as person:
        page = person.page
        person.click(page.get_by_role("link", name="Errors", exact=True))
        person.click(page.get_by_role("button", name="Retry the tasks of this error: billing.charge"))
        page.get_by_label("Reason").fill("the bank is back")
        person.click(page.get_by_role("button", name=f"Retry {DECLINED} tasks"))
        expect(page.get_by_role("status")).to_contain_text(f"Retried {DECLINED} tasks")
        again = shop.engine.run(tasks.find_tasks(TaskFilter("dead_letter"), None, 1000))
        assert again.task_ids == []
