"""What axe-core finds on a page that keeps somebody from using it."""

from typing import Any

from playwright.sync_api import Page

SERIOUS = {"serious", "critical"}


def serious(page: Page, axe: str) -> list[str]:
    page.wait_for_load_state()  # after a click, the page may be there before its styles
    page.evaluate(axe)
    found: Any = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{page.url} {rule['id']}: {node['html'][:200]}"
        for rule in found["violations"]
        if rule["impact"] in SERIOUS
        for node in rule["nodes"]
    ]
