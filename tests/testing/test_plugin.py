"""The plugin in a project of its own, run as its users run it."""

import contextlib
import os
import select
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from holdfast._install.postgres.embedded_server import EmbeddedServer

SHOP = """
    from datetime import timedelta

    from holdfast import App

    app = App("postgresql://nobody@nowhere.invalid/production")

    @app.task("shop.ship")
    def ship(order_id: int) -> str:
        return f"shipped {order_id}"

    def place_order(order_id):
        ship.using(delay=timedelta(days=1)).enqueue(order_id=order_id)
"""
TESTS = """
    import pytest
    import shop

    @pytest.fixture(autouse=True)
    def use(holdfast):
        holdfast.use(shop.app)

    @pytest.mark.parametrize("order_id", range(4))
    def test_an_order_ships_tomorrow(holdfast, order_id):
        shop.place_order(order_id)
        holdfast.assert_enqueued(shop.ship, count=1, order_id=order_id)
        assert len(holdfast.enqueued()) == 1
        assert holdfast.drain() == []
        holdfast.clock.advance(days=1)
        assert [ran.result for ran in holdfast.drain()] == [f"shipped {order_id}"]

    def test_nothing_waits_at_first(holdfast):
        assert holdfast.enqueued() == []
"""


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """Nothing but the one line in conftest."""
    monkeypatch.delenv("HOLDFAST_TEST_DATABASE_URL", raising=False)
    pytester.makeconftest('pytest_plugins = ["holdfast.testing"]')
    pytester.makeini("[pytest]\nfilterwarnings = error\nasyncio_default_fixture_loop_scope = function\n")
    return pytester


@pytest.fixture
def given_server(server: EmbeddedServer, project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_TEST_DATABASE_URL", server.url("postgres"))


def databases_of_tests(server: EmbeddedServer) -> list[str]:
    with psycopg.connect(server.url("postgres")) as connection:
        query = "select datname from pg_database where datname like 'holdfast_test_%' order by datname"
        return [name for (name,) in connection.execute(query).fetchall()]


def test_one_line_in_conftest_is_enough(project: pytest.Pytester) -> None:
    project.makepyfile(shop=SHOP, test_shop=TESTS)
    result = project.runpytest_subprocess("-p", "no:randomly")
    result.assert_outcomes(passed=5)


@pytest.mark.full
def test_tests_run_in_parallel_on_a_given_server_and_leave_nothing(
    project: pytest.Pytester, given_server: None, server: EmbeddedServer
) -> None:
    before = databases_of_tests(server)
    project.makepyfile(shop=SHOP, test_shop=TESTS)
    result = project.runpytest_subprocess("-n", "2")
    result.assert_outcomes(passed=5)
    assert databases_of_tests(server) == before


@pytest.mark.full
@pytest.mark.parametrize("mark", ["asyncio", "anyio"])
def test_async_tests_drain_in_their_loop(project: pytest.Pytester, given_server: None, mark: str) -> None:
    project.makepyfile(
        shop=SHOP,
        test_shop=f"""
        import pytest
        import shop

        @pytest.fixture
        def anyio_backend():
            return "asyncio"

        @pytest.mark.{mark}
        async def test_an_order_ships(holdfast):
            holdfast.use(shop.app)
            await shop.ship.aenqueue(order_id=7)
            assert [ran.result for ran in await holdfast.adrain()] == ["shipped 7"]
        """,
    )
    project.runpytest_subprocess().assert_outcomes(passed=1)


def test_a_failed_assertion_tells_what_waits(project: pytest.Pytester, given_server: None) -> None:
    project.makepyfile(
        shop=SHOP,
        test_shop="""
        import shop

        def test_ships(holdfast):
            holdfast.use(shop.app)
            shop.place_order(8)
            holdfast.assert_enqueued(shop.ship, order_id=7)
        """,
    )
    result = project.runpytest_subprocess()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "*no task shop.ship(order_id=7) waits, expected at least one. Waiting tasks:",
            '*shop.ship {"order_id": 8} in queue shop, scheduled, due *',
        ]
    )


@pytest.mark.full
def test_a_failed_assertion_shows_the_line_of_the_test_and_none_of_ours(
    project: pytest.Pytester, given_server: None
) -> None:
    project.makepyfile(
        shop=SHOP,
        test_shop="""
        import shop

        def test_waits(holdfast):
            holdfast.use(shop.app)
            holdfast.assert_enqueued(shop.ship)

        def test_does_not_wait(holdfast):
            holdfast.use(shop.app)
            shop.place_order(7)
            holdfast.assert_not_enqueued(shop.ship)
        """,
    )
    result = project.runpytest_subprocess("-p", "no:randomly")
    result.assert_outcomes(failed=2)
    assert "sandbox.py" not in result.stdout.str()
    result.stdout.fnmatch_lines(["*test_shop.py:5: AssertionError", "*test_shop.py:10: AssertionError"])


@pytest.mark.full
def test_a_project_adds_its_own_tables_once(project: pytest.Pytester, given_server: None) -> None:
    project.makeconftest(
        """
        import psycopg
        import pytest

        from holdfast.testing import Sandbox

        pytest_plugins = ["holdfast.testing"]

        @pytest.fixture(scope="session")
        def holdfast_prepare():
            def create_tables(dsn):
                with psycopg.connect(dsn) as connection:
                    connection.execute("create table public.orders (id integer)")
            return create_tables
        """
    )
    project.makepyfile(
        """
        import pytest

        @pytest.mark.parametrize("number", [1, 2])
        def test_orders(holdfast, number):
            connection = holdfast.connect()
            connection.execute("insert into public.orders values (%s)", [number])
            assert connection.execute("select id from public.orders").fetchall() == [(number,)]
        """
    )
    project.runpytest_subprocess().assert_outcomes(passed=2)


@pytest.mark.full
def test_what_a_killed_run_left_on_a_given_server_is_removed_by_the_next(
    project: pytest.Pytester, given_server: None, server: EmbeddedServer
) -> None:
    before = databases_of_tests(server)
    project.makepyfile(
        """
        import os
        import signal

        def test_dies(holdfast):
            os.kill(os.getpid(), signal.SIGKILL)
        """
    )
    project.runpytest_subprocess()
    assert len(databases_of_tests(server)) == len(before) + 2
    project.makepyfile("def test_nothing(holdfast): pass")
    project.runpytest_subprocess().assert_outcomes(passed=1)
    assert databases_of_tests(server) == before


@pytest.mark.full
def test_a_server_of_its_own_is_removed_even_if_the_run_is_killed(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        import os
        import signal
        from pathlib import Path

        from psycopg.conninfo import conninfo_to_dict

        def test_dies(holdfast):
            Path("socket").write_text(conninfo_to_dict(holdfast.dsn)["host"])
            os.kill(os.getpid(), signal.SIGKILL)
        """
    )
    project.runpytest_subprocess()
    home = Path(Path("socket").read_text()).parents[1]
    assert home.name.startswith("hf-")
    for guard in _processes_about(home):
        _wait_for_end(guard)
    assert not home.exists()


@pytest.mark.full
def test_holdfast_itself_needs_no_pytest() -> None:
    program = """
import pkgutil, sys
sys.modules["pytest"] = None
import holdfast
for module in pkgutil.walk_packages(holdfast.__path__, "holdfast."):
    if not module.name.startswith(("holdfast.testing", "holdfast.contrib.django")):
        __import__(module.name)
"""
    subprocess.run([sys.executable, "-c", program], check=True, env=dict(os.environ))


def _processes_about(home: Path) -> list[int]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if os.fsencode(home) in (process / "cmdline").read_bytes().split(b"\0"):
                found.append(int(process.name))
    return found


def _wait_for_end(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        descriptor = os.pidfd_open(pid)
        assert select.select([descriptor], [], [], 60)[0], f"process {pid} goes on"
        os.close(descriptor)


def test_databases_of_tests_do_without_the_units_that_the_settings_leave_out(
    project: pytest.Pytester, given_server: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_WITHOUT", "messages, events")
    project.makepyfile(
        shop=SHOP,
        test_shop="""
        import pytest
        import shop
        from holdfast.errors import UnitNotInstalled

        def test_an_order_ships(holdfast):
            holdfast.use(shop.app)
            shop.ship.enqueue(order_id=7)
            assert [ran.result for ran in holdfast.drain()] == ["shipped 7"]
            with pytest.raises(UnitNotInstalled, match="holdfast migrate --with events"):
                shop.app.emit("order.created")
        """,
    )
    project.runpytest_subprocess().assert_outcomes(passed=1)
