"""Logging in to the dashboard: the session, its cookie, and tokens that are rejected."""

from typing import Any

import pytest

from holdfast._engine import access
from support.visitor import Visitor
from support.web import Web, serving


def test_a_login_sets_a_cookie_that_scripts_and_other_sites_cannot_use(stranger: Visitor) -> None:
    answer = stranger.log_in("read", next="/queues")
    assert answer.headers["Location"] == "/queues"
    cookie = answer.headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert stranger.get("/queues").status_code == 200


@pytest.mark.parametrize(
    "wanted", ["//evil.example", "https://evil.example", "/\\evil.example", "javascript:x", "/\r\nX: y"]
)
def test_a_login_never_redirects_to_another_site(stranger: Visitor, wanted: str) -> None:
    assert stranger.log_in("read", next=wanted).headers["Location"] == "/"


@pytest.mark.parametrize("token", ["", "x", "hf_" + "A" * 43])
def test_a_wrong_token_is_rejected(stranger: Visitor, token: str) -> None:
    answer = stranger.post("/login", token=token, csrf="")
    assert answer.status_code == 403
    assert "unknown, expired or revoked" in answer.text
    assert "Set-Cookie" not in answer.headers


def test_failed_logins_are_limited(module_db: Any) -> None:
    with serving(module_db) as own:
        visitor, wrong = Visitor(own), "x"
        statuses = [visitor.post("/login", token=wrong, csrf="").status_code for _ in range(12)]
        assert statuses == [403] * 10 + [429] * 2
        assert visitor.log_in("read").status_code == 429
        visitor.client.close()


def test_logging_out_ends_the_session(anna: Visitor) -> None:
    session = dict(anna.client.cookies)
    assert anna.post("/logout").status_code == 303
    anna.client.cookies.update(session)
    assert anna.get("/queues").status_code == 303


def test_a_session_ends_with_its_token(web: Web, stranger: Visitor) -> None:
    from holdfast.server.access import hash_of, new_token

    token = new_token()
    number = web.engine.run(access.create_token("short", ["read"], hash_of(token)))
    assert stranger.post("/login", token=token, csrf="").status_code == 303
    assert stranger.get("/queues").status_code == 200
    web.engine.run(access.revoke_token(number))
    assert stranger.get("/queues").status_code == 303


def test_a_token_that_may_only_enqueue_sees_nothing(stranger: Visitor) -> None:
    stranger.log_in("enqueue")
    assert stranger.get("/queues").status_code == 403
