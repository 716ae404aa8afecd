"""The markup of pages: it loads nothing from other hosts, and no value becomes a part of it."""

import os
from html.parser import HTMLParser
from typing import Any

import pytest

from holdfast._engine import Engine
from holdfast._install.postgres.embedded_server import EmbeddedServer
from holdfast.server.pages.page import NAVIGATION
from support.commands import failed_task
from support.database import cloned_database
from support.hostile_strings import STRINGS
from support.hostile_texts import stage
from support.visitor import Visitor
from support.web import serving

FULL = os.environ.get("HOLDFAST_ACCEPTANCE") == "full"
PAGES = [path for path, _ in NAVIGATION]


class Tags(HTMLParser):
    """The elements of a page, parsed as a browser parses them."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def test_pages_load_nothing_from_other_hosts_and_have_no_inline_script_or_style(
    anna: Visitor, engine: Engine
) -> None:
    task_id = failed_task(engine, queue="plain")
    for path in [*PAGES, f"/tasks/{task_id}"]:
        for tag, attributes in Tags(anna.get(path).text).found:
            assert tag != "style", path
            assert tag != "script" or "src" in attributes, path
            assert not [name for name in attributes if name == "style" or name.startswith("on")], (path, tag)
            for name in ("src", "href", "action", "formaction"):
                assert (attributes.get(name) or "/").startswith(("/", "#")), (path, attributes)


def _skeleton(html: str) -> list[tuple[str, tuple[str, ...]]]:
    """The elements of a page and the names of their attributes, without any text."""
    return [(tag, tuple(attributes)) for tag, attributes in Tags(html).found]


ALIVE = {"iframe", "object", "embed", "math", "video", "style", "base", "marquee", "template", "noscript"}


@pytest.mark.full
def test_a_hundred_hostile_strings_stay_text_on_every_page(module_db: Any) -> None:
    assert len(set(STRINGS)) == 100
    with serving(module_db) as own:
        visitor = Visitor(own)
        visitor.log_in("admin")

        csrf = visitor.csrf()

        def seen(text: str, number: int) -> list[list[tuple[str, tuple[str, ...]]]]:
            """Every page that shows only this text; by default, one of them in turn."""
            staged = stage(own.engine, text)
            reason = text.strip()[:100] or "x"
            shown = visitor.post(f"/tasks/{staged.task_id}/reveal", reason=reason, csrf=csrf).text
            paths = staged.paths if FULL else [staged.paths[number % 5]]
            return [_skeleton(html) for html in [shown, *(visitor.get(path).text for path in paths)]]

        plain = [seen("harmless", number) for number in range(5)]
        for number, text in enumerate(STRINGS):
            assert seen(text, number) == plain[number % 5], repr(text)
        for path in PAGES:
            answer = visitor.get(path)
            assert answer.status_code == 200
            found = _skeleton(answer.text)
            assert ALIVE.isdisjoint(tag for tag, _ in found), path
            assert not any(name.startswith("on") for _, names in found for name in names), path
            assert sum(tag == "script" for tag, _ in found) == 1, path
        visitor.client.close()


TIMED = ("/", "/health")
"""Pages whose charts and findings depend on the minute. Other tests show them every hostile string."""


def test_lists_of_one_hostile_thing_look_like_lists_of_a_harmless_one(
    server: EmbeddedServer, template: str
) -> None:
    """The worst ones, on pages that would otherwise show a hundred together."""

    def lists(text: str) -> list[list[tuple[str, tuple[str, ...]]]]:
        with cloned_database(server, template) as database, serving(database) as own:
            visitor = Visitor(own)
            visitor.log_in("admin")
            stage(own.engine, text)
            found = [_skeleton(visitor.get(path).text) for path in PAGES if path not in TIMED]
            visitor.client.close()
        return found

    plain = lists("harmless")
    for text in ('"/><div id="live-part">', "</textarea><script>window.hacked=1</script>"):
        assert lists(text) == plain, text
