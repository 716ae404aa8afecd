"""holdfast tokens."""

from holdfast._engine import Engine, access
from holdfast.server.access import hash_of
from support.commands import Holdfast, answer, run
from support.database import Database


def test_a_token_is_printed_once_and_good_until_it_is_revoked(engine: Engine, holdfast: Holdfast) -> None:
    made = holdfast("tokens", "create", "shop", "--scope", "enqueue", "--scope", "read", "--ttl", "1d")
    token = made.stdout.strip()
    found = engine.run(access.check_token(hash_of(token)))
    assert found
    assert (found.name, found.scopes) == ("shop", ["enqueue", "read"])
    [listed] = answer(holdfast("tokens", "list", "--json"))["tokens"]
    assert (listed["name"], listed["good"]) == ("shop", True)
    assert token not in holdfast("tokens", "list").stdout
    revoked = holdfast("tokens", "revoke", str(found.token_id), "--reason", "leaked")
    assert revoked.stdout == f"Token {found.token_id} is revoked.\n"
    assert engine.run(access.check_token(hash_of(token))) is None
    assert answer(holdfast("tokens", "revoke", str(found.token_id), "--json"))["changed"] is False


def test_without_a_scope_it_may_read(engine: Engine, holdfast: Holdfast) -> None:
    made = answer(holdfast("tokens", "create", "anna", "--json"))
    found = engine.run(access.check_token(hash_of(made["token"])))
    assert found
    assert found.scopes == ["read"]


def test_a_token_has_a_namespace_of_its_own_or_the_one_given(db: Database, holdfast: Holdfast) -> None:
    holdfast("tokens", "create", "shop")
    holdfast("tokens", "create", "bank", "--namespace", "bank_web")
    listed = answer(holdfast("tokens", "list", "--json"))["tokens"]
    assert [token["namespace"] for token in listed] == ["bank_web", "token:shop"]

    operator = db.dsn_as("holdfast_operator")
    refused = run("tokens", "create", "x", "--namespace", "bank_web", url=operator)
    assert (refused.exit_code, "holdfast_owner" in refused.stderr) == (7, True)


def test_no_token_is_no_error(holdfast: Holdfast) -> None:
    assert answer(holdfast("tokens", "list", "--json")) == {"tokens": []}
    assert "holdfast tokens create" in holdfast("tokens", "list").stderr


def test_what_cannot_be_is_refused(db: Database, holdfast: Holdfast) -> None:
    assert holdfast("tokens", "create", "x", "--scope", "root").exit_code == 2
    assert holdfast("tokens", "create", "x", "--ttl", "soon").exit_code == 2
    assert holdfast("tokens", "revoke", "999").exit_code == 4
    reader = db.dsn_as("holdfast_reader")
    assert holdfast("tokens", "list", url=reader).exit_code == 7
