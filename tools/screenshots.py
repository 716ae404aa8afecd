"""Draws the pictures of the documentation: a shop is made in an empty database, and Chromium opens its pages.

Run it with `make screenshots`, which writes docs/images. Every picture in there is one of SHOTS.
"""

import struct
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import psycopg
from playwright.sync_api import Browser, sync_playwright

from holdfast._install.schema import install_test_clock, migrate
from support.database import Database
from support.server import disposable_server
from support.shop_hour import ShopHour, run_order
from support.web import serving

IMAGES = Path(__file__).parent.parent / "docs" / "images"
CHROMIUM = "/usr/bin/chromium"
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]


class Shot(NamedTuple):
    """A picture: a page, in a colour scheme, as wide as this; or one panel of it."""

    name: str
    path: str
    scheme: str = "light"
    width: int = 1280
    height: int = 800
    panel: str = ""


ORDER = "the page of the order"
SHOTS = (
    Shot("overview", "/", height=1150),
    Shot("overview-dark", "/", "dark", height=1150),
    Shot("overview-phone", "/", width=390, height=844),
    Shot("tasks", "/tasks"),
    Shot("tasks-dark", "/tasks", "dark"),
    Shot("task", ORDER, height=1000),
    Shot("task-dark", ORDER, "dark", height=1000),
    Shot("timeline", ORDER, panel="Timeline"),
    Shot("errors", "/errors?window=start", height=400),
    Shot("errors-dark", "/errors?window=start", "dark", height=420),
    Shot("schedules", "/schedules", height=420),
    Shot("workers", "/workers", height=420),
)


@contextmanager
def filled_database() -> Iterator[Database]:
    with disposable_server(18) as server:
        with psycopg.connect(server.url("postgres"), autocommit=True) as admin:
            admin.execute("create database shop")
        database = Database(server, "shop")
        migrate(database.dsn)
        install_test_clock(database.dsn)
        ShopHour(database.connect()).fill()
        run_order(database.dsn)
        yield database
        database.close()


def draw(browser: Browser, url: str, shot: Shot, order: str) -> bytes:
    context = browser.new_context(
        base_url=url,
        color_scheme=shot.scheme,  # type: ignore[arg-type]  # light or dark
        viewport={"width": shot.width, "height": shot.height},
        timezone_id="Europe/Berlin",
        locale="en-GB",
        reduced_motion="reduce",
    )
    page = context.new_page()
    page.goto(order if shot.path == ORDER else shot.path)
    page.get_by_role("heading", level=1).wait_for()
    shown = page.get_by_role("region", name=shot.panel, exact=True) if shot.panel else page
    picture = shown.screenshot()
    context.close()
    return smaller(picture)


def smaller(png: bytes) -> bytes:
    """The same picture without what Chromium adds, packed as well as zlib can."""
    chunks, at = [], 8
    while at < len(png):
        length, kind = struct.unpack(">I4s", png[at : at + 8])
        chunks.append((kind, png[at + 8 : at + 8 + length]))
        at += 12 + length
    packed = zlib.compress(zlib.decompress(b"".join(data for kind, data in chunks if kind == b"IDAT")), 9)
    kept = [(b"IHDR", chunks[0][1]), (b"IDAT", packed), (b"IEND", b"")]
    written = [
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in kept
    ]
    return png[:8] + b"".join(written)


def main(images: Path = IMAGES) -> None:
    images.mkdir(parents=True, exist_ok=True)
    with filled_database() as database, sync_playwright() as playwright:
        with database.connect() as connection:
            query = "select task_id from queues.task_status where idempotency_key = 'order-7'"
            [(task_id,)] = connection.execute(query).fetchall()
        with serving(database, asks_for_login=False, web_values="shown") as web:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
            for shot in SHOTS:
                picture = draw(browser, web.url, shot, f"/tasks/{task_id}")
                (images / f"{shot.name}.png").write_bytes(picture)
                print(f"{shot.name}.png {len(picture):,} bytes")
            browser.close()


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]))
