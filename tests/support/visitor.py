"""A minimal browser for pages without scripts."""

import re

import httpx

from support.web import TRUST, Web


class Visitor:
    """A minimal browser: keeps cookies, and sends Origin with forms."""

    def __init__(self, web: Web) -> None:
        self.web = web
        self.client = httpx.Client(
            base_url=web.url, timeout=30, verify=TRUST, headers={"Accept": "text/html"}
        )

    def log_in(self, *scopes: str, **form: str) -> httpx.Response:
        return self.post("/login", token=self.web.token(*scopes), csrf="", **form)

    def get(self, path: str, **headers: str) -> httpx.Response:
        return self.client.get(path, headers=headers)

    def post(self, path: str, origin: str | None = "", **form: str) -> httpx.Response:
        headers = {} if origin is None else {"Origin": origin or self.web.url}
        if "csrf" not in form:
            form["csrf"] = self.csrf()
        return self.client.post(path, data=form, headers=headers)

    def csrf(self) -> str:
        [found, *_] = re.findall(r'name="csrf" value="([\w-]+)"', self.get("/queues").text)
        return str(found)
