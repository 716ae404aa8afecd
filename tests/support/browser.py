"""Actions of the dashboard in a browser."""

from playwright.sync_api import Locator, Page, expect


def act(place: Page | Locator, label: str, reason: str) -> None:
    place.get_by_text(f"{label}…").click()
    form = place.locator("details[open]")
    form.get_by_label("Reason").fill(reason)
    form.get_by_role("button", name=label).click()


def told(page: Page, text: str) -> None:
    expect(page.get_by_role("status")).to_contain_text(text)


def row(page: Page, name: str) -> Locator:
    return page.get_by_role("row").filter(has_text=name)
