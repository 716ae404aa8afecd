"""holdfast worker: an application that is not there, or a value that cannot be used, is explained."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.app import App
from holdfast.cli.app_loader import load_app
from holdfast.errors import ConfigurationError
from support.command import holdfast
from support.commands import run
from support.database import Database

APPLICATION = """
from holdfast import App

app = App()
other = App()

class Settings:
    app = App()

@app.task("shop.echo")
async def echo() -> None:
    pass
"""


@pytest.fixture(autouse=True)
def module(elsewhere: Path) -> Iterator[str]:
    """A module of the working directory."""
    (elsewhere / "some_shop.py").write_text(APPLICATION)
    path = sys.path[:]
    yield "some_shop"
    sys.path[:] = path
    for name in ("some_shop", "broken_shop"):
        sys.modules.pop(name, None)


@pytest.fixture
def options(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the worker would have been run with."""
    given: dict[str, Any] = {}

    def run_worker(self: App, **options: Any) -> int:
        given.update(options)
        return 7

    monkeypatch.setattr(App, "run_worker", run_worker)
    monkeypatch.setattr("holdfast.cli.worker._exit_within", lambda *_: None)
    return given


def test_an_application_is_found_in_the_working_directory() -> None:
    assert isinstance(load_app("some_shop:app"), App)


def test_an_application_may_be_an_attribute_of_something() -> None:
    assert isinstance(load_app("some_shop:Settings.app"), App)


@pytest.mark.parametrize(
    ("given", "refusal"),
    [
        ("some_shop", r"'some_shop' is not an application\. Use MODULE:APP"),
        ("some_shop:", "Use MODULE:APP"),
        (":app", "Use MODULE:APP"),
        ("no_such_shop:app", "there is no module 'no_such_shop'"),
        ("some_shop.orders:app", "there is no module 'some_shop.orders'"),
        ("some_shop:ap", r"module some_shop has no 'ap'. Did you mean some_shop:app or some_shop:other"),
        ("some_shop:echo", "some_shop:echo is a Task, not an App"),
        ("json:dumps", r"is a function, not an App. json defines no App"),
    ],
)
def test_an_application_that_is_not_there_is_explained(given: str, refusal: str) -> None:
    with pytest.raises(ConfigurationError, match=refusal):
        load_app(given)


def test_what_the_application_itself_misses_is_shown_where_it_misses_it(elsewhere: Path) -> None:
    (elsewhere / "broken_shop.py").write_text("import no_such_library")
    with pytest.raises(ModuleNotFoundError, match="no_such_library"):
        load_app("broken_shop:app")


def test_a_refusal_is_one_line_and_code_2(db: Database) -> None:
    result = run("worker", "no_such_shop:app", url=db.dsn)
    assert result.exit_code == 2
    assert result.stderr.startswith("holdfast: there is no module 'no_such_shop'")


def test_every_option_becomes_a_setting(options: dict[str, Any], db: Database) -> None:
    arguments = {
        "--queues": ("worker_queues", "a,b"),
        "--prefixes": ("worker_type_prefixes", "a."),
        "--concurrency": ("worker_concurrency", "5"),
        "--lease": ("lease", "1m"),
        "--heartbeat": ("heartbeat", "5s"),
        "--grace": ("grace", "1s"),
        "--poll-interval": ("poll_interval", "100ms"),
        "--worker-id": ("worker_id", "me"),
        "--log-format": ("log_format", "json"),
        "--log-level": ("log_level", "debug"),
        "--metrics-port": ("metrics_port", "9000"),
        "--database-url": ("database_url", db.dsn),
    }
    given = [text for option, (_, value) in arguments.items() for text in (option, value)]
    assert run("worker", "some_shop:app", *given, url=db.dsn).exit_code == 7
    assert options == dict(arguments.values())


def test_an_option_that_is_not_given_leaves_the_setting_alone(options: dict[str, Any], db: Database) -> None:
    run("worker", "some_shop:app", url=db.dsn)
    assert options == {}


@pytest.mark.parametrize(
    ("option", "value", "refusal"),
    [
        ("--concurrency", "0", "WORKER_CONCURRENCY='0' cannot be used: Input should be greater"),
        (
            "--concurrency",
            "many",
            "WORKER_CONCURRENCY='many' cannot be used: Input should be a valid integer",
        ),
        ("--lease", "soon", "HOLDFAST_LEASE='soon' cannot be used: give seconds"),
        ("--lease", "10ms", "HOLDFAST_LEASE='10ms' cannot be used: give a duration between 1s and 1d"),
        ("--heartbeat", "20s", "HOLDFAST_HEARTBEAT='20s' cannot be used: give at most half of the lease"),
        ("--log-level", "loud", "HOLDFAST_LOG_LEVEL='loud' cannot be used: Input should be 'debug', 'info'"),
        ("--metrics-port", "70000", "HOLDFAST_METRICS_PORT='70000' cannot be used: Input should be less"),
    ],
)
@pytest.mark.parametrize("processes", [(), ("--processes", "2")])
def test_a_value_that_cannot_be_used_stops_the_start(
    option: str, value: str, refusal: str, processes: tuple[str, ...], db: Database
) -> None:
    result = run("worker", "some_shop:app", option, value, *processes, url=db.dsn)
    assert result.exit_code == 2
    assert refusal in result.stderr


COMMAND = '{{"resize": {{"argv": ["{program}"], "types": ["shop."]{more}}}}}'
UNUSABLE = [
    ("HOLDFAST_PROCESS_USER", "nosuchuser", "cannot be used: this machine has no such account"),
    ("HOLDFAST_COMMANDS", COMMAND.format(program="nosuchprogram", more=""), "there is no such program"),
    ("HOLDFAST_COMMANDS", COMMAND.format(program="/etc/passwd", more=""), "there is no such program"),
    (
        "HOLDFAST_COMMANDS",
        COMMAND.format(program="python", more=', "user": "nosuchuser"'),
        "commands.resize.user 'nosuchuser' cannot be used: this machine has no such account",
    ),
    (
        "HOLDFAST_COMMANDS",
        COMMAND.format(program="python", more=', "directory": "/nowhere"'),
        "commands.resize.directory '/nowhere' cannot be used: it is not a directory",
    ),
    ("HOLDFAST_TEMPLATES", "/nowhere", "HOLDFAST_TEMPLATES='/nowhere' cannot be used: it is not a directory"),
    ("HOLDFAST_EMAIL_SENDER", "the shop", "HOLDFAST_EMAIL_SENDER='the shop' cannot be used: "),
    ("HOLDFAST_SMS_SENDER", "+49 and so on", "HOLDFAST_SMS_SENDER='+49 and so on' cannot be used: "),
]


@pytest.mark.parametrize("unusable", UNUSABLE)
@pytest.mark.parametrize("processes", [(), ("--processes", "2")])
def test_a_setting_that_this_machine_cannot_honour_stops_the_start(
    unusable: tuple[str, str, str],
    processes: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    db: Database,
) -> None:
    variable, value, refusal = unusable
    monkeypatch.setenv(variable, value)
    result = run("worker", "some_shop:app", *processes, url=db.dsn)
    assert (result.exit_code, refusal in result.stderr) == (2, True), result.stderr
    assert db.connect().execute("select from queues.worker").fetchall() == []


def test_an_account_that_cannot_run_the_worker_s_python_is_refused(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch, db: Database
) -> None:
    """The directories of a test are closed to all but their owner."""
    monkeypatch.setenv("HOLDFAST_PROCESS_USER", "nobody")
    result = run("worker", "some_shop:app", url=db.dsn)
    assert result.exit_code == 2
    refusals = (f"cannot run {sys.executable} in {elsewhere}", "only root can start processes")
    assert any(refusal in result.stderr for refusal in refusals), result.stderr


@pytest.mark.parametrize(
    ("variables", "refusal"),
    [
        (
            {"HOLDFAST_EMAIL_PROVIDER": "pigeon"},
            "HOLDFAST_EMAIL_PROVIDER='pigeon' is not a provider. Known providers:",
        ),
        ({"HOLDFAST_EMAIL_PROVIDER": "smtp"}, "HOLDFAST_SMTP_HOST is not set. The provider smtp needs it."),
        ({"HOLDFAST_EMAIL_PROVIDER": "resend"}, "HOLDFAST_RESEND_API_KEY is not set"),
        ({"HOLDFAST_SMS_PROVIDER": "twilio"}, "HOLDFAST_TWILIO_ACCOUNT_SID is not set"),
        (
            {
                "HOLDFAST_EMAIL_PROVIDER": "smtp",
                "HOLDFAST_SMTP_HOST": "h",
                "HOLDFAST_SMTP_CA_FILE": "/nowhere",
            },
            "HOLDFAST_SMTP_CA_FILE='/nowhere' cannot be read",
        ),
    ],
)
def test_a_provider_that_cannot_be_used_stops_the_start_of_a_worker_that_serves_messages(
    variables: dict[str, str], refusal: str, elsewhere: Path, db: Database
) -> None:
    with holdfast("worker", "some_shop:app", cwd=elsewhere, DATABASE_URL=db.dsn, **variables) as process:
        assert process.ended() == 2
    assert refusal in "".join(process.read)


@pytest.mark.parametrize("queues", [(), ("--queues", "shop")])
def test_a_task_that_this_worker_could_not_run_stops_its_start(
    queues: tuple[str, ...], elsewhere: Path, db: Database
) -> None:
    program = '\n@app.task("shop.x", executor="command")\ndef x() -> None: ...\n'
    (elsewhere / "some_shop.py").write_text(APPLICATION + program)
    result = run("worker", "some_shop:app", *queues, url=db.dsn)
    assert result.exit_code == 2
    assert "no command runs shop.x, which is declared with executor='command'" in result.stderr


def test_a_worker_without_an_application_runs(options: dict[str, Any], db: Database) -> None:
    assert run("worker", "--queues", "comms", url=db.dsn).exit_code == 7
    assert options["worker_queues"] == "comms"


def test_a_number_of_processes_below_one_is_refused(db: Database) -> None:
    assert run("worker", "some_shop:app", "--processes", "0", url=db.dsn).exit_code == 2


def test_a_worker_loads_nothing_that_it_does_not_need() -> None:
    program = """
import sys
from holdfast.cli.command_line import build_app
build_app({"Run": ["worker"]})
import holdfast._worker
unwanted = {"holdfast._install.postgres.embedded_server", "holdfast._install.schema"}
print(sorted(unwanted & sys.modules.keys()))
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"
