"""holdfast namespaces."""

import pytest

from holdfast._engine import Engine, access
from support.commands import Holdfast, answer, run
from support.database import Database

CLIENT = "holdfast_client_login"


@pytest.fixture(autouse=True)
def client(db: Database) -> str:
    """The address of a login of that name."""
    return db.dsn_as("holdfast_client")


def test_a_login_joins_a_namespace_and_leaves_it(client: str, engine: Engine, holdfast: Holdfast) -> None:
    added = holdfast("namespaces", "add", CLIENT, "shop", "--reason", "one application")
    assert added.stdout == f"Login {CLIENT} now uses namespace shop.\n"
    assert answer(holdfast("namespaces", "add", CLIENT, "shop", "--json"))["changed"] is False
    assert answer(run("namespaces", "show", "--json", url=client))["namespace"] == "shop"
    assert engine.run(access.access_events(1))[0].reason == f"login {CLIENT}, namespace shop: one application"

    assert holdfast("namespaces", "remove", CLIENT).stdout == f"Login {CLIENT} now uses its own namespace.\n"
    assert answer(holdfast("namespaces", "remove", CLIENT, "--json"))["changed"] is False
    assert answer(run("namespaces", "show", "--json", url=client))["namespace"] == CLIENT


def test_namespaces_are_listed_with_their_logins_and_tokens(holdfast: Holdfast) -> None:
    assert answer(holdfast("namespaces", "list", "--json")) == {"namespaces": []}
    assert "No shared namespaces" in holdfast("namespaces", "list").stderr
    holdfast("namespaces", "add", CLIENT, "shop")
    holdfast("tokens", "create", "till", "--namespace", "shop")
    holdfast("tokens", "create", "bank")

    assert answer(holdfast("namespaces", "list", "--json"))["namespaces"] == [
        {"namespace": "shop", "logins": [CLIENT], "tokens": ["till"]},
        {"namespace": "token:bank", "logins": [], "tokens": ["bank"]},
    ]
    assert "token:bank" in holdfast("namespaces", "list").stdout
    members = answer(holdfast("namespaces", "show", "shop", "--json"))["members"]
    assert [(one["kind"], one["name"]) for one in members] == [("login", CLIENT), ("token", "till")]
    assert CLIENT in holdfast("namespaces", "show", "shop").stdout
    assert "Only the login of the same name" in holdfast("namespaces", "show", "elsewhere").stderr


@pytest.mark.parametrize("role", ["holdfast_client", "holdfast_operator"])
def test_only_an_administrator_changes_them(db: Database, role: str) -> None:
    for arguments in (("add", CLIENT, "shop"), ("remove", CLIENT)):
        refused = run("namespaces", *arguments, url=db.dsn_as(role))
        assert (refused.exit_code, "holdfast_owner" in refused.stderr) == (7, True)


def test_what_cannot_be_is_refused(holdfast: Holdfast) -> None:
    assert holdfast("namespaces", "add", "no such login", "shop").exit_code == 4
    holdfast("namespaces", "add", CLIENT, "shop")
    elsewhere = holdfast("namespaces", "add", CLIENT, "bank")
    assert (elsewhere.exit_code, "already uses namespace" in elsewhere.stderr) == (1, True)
