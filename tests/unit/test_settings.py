from datetime import timedelta
from pathlib import Path
from traceback import format_exception

import pytest

from holdfast._install.schema import migrate
from holdfast.errors import ConfigurationError
from holdfast.settings import Settings, variable_of
from holdfast.settings.values import parse_duration


@pytest.fixture(autouse=True)
def working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in Settings.model_fields:
        monkeypatch.delenv(variable_of(name), raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_pyproject(text: str) -> None:
    Path("pyproject.toml").write_text(f"[tool.holdfast]\n{text}\n")


def test_home_is_a_directory_of_the_working_directory_by_default(working_directory: Path) -> None:
    assert Settings.load().home == working_directory / ".holdfast"


def test_there_is_no_database_url_by_default() -> None:
    assert Settings.load().database_url is None


def test_the_environment_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://me@db/work")
    monkeypatch.setenv("HOLDFAST_HOME", "/var/lib/work")
    assert Settings.load() == Settings(database_url="postgresql://me@db/work", home=Path("/var/lib/work"))


def test_the_home_of_the_user_is_not_the_home_of_holdfast(
    monkeypatch: pytest.MonkeyPatch, working_directory: Path
) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    assert Settings.load().home == working_directory / ".holdfast"


def test_an_empty_variable_counts_as_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "")
    assert Settings.load().database_url is None


def test_each_source_overrides_the_one_before_it(
    monkeypatch: pytest.MonkeyPatch, working_directory: Path
) -> None:
    assert Settings.load().home == working_directory / ".holdfast"
    write_pyproject('home = "from-pyproject"')
    assert Settings.load().home == working_directory / "from-pyproject"
    monkeypatch.setenv("HOLDFAST_HOME", "/from/environment")
    assert Settings.load().home == Path("/from/environment")
    assert Settings.load(home=Path("/from/argument")).home == Path("/from/argument")


def test_an_argument_that_is_none_counts_as_not_given() -> None:
    write_pyproject('home = "/from/pyproject"')
    assert Settings.load(home=None).home == Path("/from/pyproject")


def test_a_bad_value_is_refused_with_its_variable_and_what_is_allowed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DATABASE_URL", "mysql+driver://db/work")
    with pytest.raises(ConfigurationError, match=r"DATABASE_URL cannot be used: .* postgresql://user@host"):
        Settings.load()


@pytest.mark.parametrize(
    ("variable", "value", "allowed"),
    [
        ("WORKER_ID", "x" * 200, "at most 150 characters"),
        ("POLL_INTERVAL", "soon", "give seconds"),
        ("POLL_INTERVAL", "2h", "between 10ms and 1h"),
        ("WORKER_CONCURRENCY", "0", "greater than or equal to 1"),
        ("WORKER_CONCURRENCY", "many", "a valid integer"),
        ("WORKER_TIMEOUT", "1s", "between 5s and 1d"),
        ("HOLDFAST_LEASE", "10ms", "between 1s and 1d"),
        ("HOLDFAST_HEARTBEAT", "20s", "at most half of the lease"),
        ("HOLDFAST_GRACE", "-1", "give seconds"),
        ("HOLDFAST_LOG_LEVEL", "loud", "'debug', 'info', 'warning' or 'error'"),
        ("HOLDFAST_METRICS_PORT", "70000", "less than or equal to 65535"),
    ],
)
def test_a_bad_variable_is_refused_by_its_name_with_the_value_and_what_is_allowed(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, allowed: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(ConfigurationError) as refusal:
        Settings.load()
    assert str(refusal.value).startswith(f"{variable}='{value}' cannot be used: ")
    assert allowed in str(refusal.value)


def test_what_a_worker_serves_and_how_long_it_waits_comes_from_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    usual = Settings.load()
    assert (usual.worker_queues, usual.worker_type_prefixes) == ((), ())
    assert (usual.lease, usual.heartbeat) == (timedelta(seconds=30), timedelta(seconds=10))
    given = {
        "WORKER_ID": "node-3",
        "WORKER_QUEUES": "billing, media",
        "WORKER_TYPE_PREFIXES": "billing.,media.",
        "WORKER_CONCURRENCY": "4",
        "POLL_INTERVAL": "500ms",
        "WORKER_TIMEOUT": "45",
    }
    for variable, value in given.items():
        monkeypatch.setenv(variable, value)
    found = Settings.load()
    assert (found.worker_id, found.worker_concurrency) == ("node-3", 4)
    assert found.worker_queues == ("billing", "media")
    assert found.worker_type_prefixes == ("billing.", "media.")
    assert (found.poll_interval, found.worker_timeout) == (timedelta(seconds=0.5), timedelta(seconds=45))


MALFORMED = [
    "postgres+x://me:hunter/2@db/work",
    "postgres//me:hunter2@db/work",
    "postgresql:/me:hunter2@db",
    "me:hunter2@db",
    "password=hunter2 host",
    "password = hunter2 host",
    "host=db passwort=hunter2",
    "host=db password='hunter2",
    "postgresql://me:hunter%2@db",
    "postgresql://me:hunter2@[::1/db",
    "postgresql://me:x@hunter2@db/work",
    "postgresql://me:hunter/2@db/work",
    "hunter2",
]


@pytest.mark.parametrize("url", MALFORMED)
def test_a_refused_address_is_not_shown_because_it_may_hold_a_password(
    monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.setenv("DATABASE_URL", url)
    with pytest.raises(ConfigurationError) as refusal:
        Settings.load()
    assert str(refusal.value).startswith("DATABASE_URL cannot be used: ")
    assert "hunter" not in "".join(format_exception(refusal.value))


@pytest.mark.parametrize("url", ["me:hunter2@db", "postgresql:/me:hunter2@db", "postgresql://me:hunter%2@db"])
def test_an_address_that_libpq_refuses_is_not_shown_either(url: str) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        migrate(url)
    assert "cannot be read" in str(refusal.value)
    assert "hunter" not in str(refusal.value)
    assert "hunter" not in str(refusal.value.__cause__)


def test_the_user_in_another_address_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_RESEND_URL", "ftp://me:hunter2@mail")
    with pytest.raises(ConfigurationError, match=r"HOLDFAST_RESEND_URL='ftp://\*\*\*@mail' cannot be used"):
        Settings.load()


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:a%40b@db/work",
        "postgresql://a:1,b:2/work",
        "host=db password='a@b:/'",
        "postgresql:///work?host=/tmp&application_name=a@b",
    ],
)
def test_a_good_address_is_taken(url: str) -> None:
    assert Settings.load(database_url=url).database_url == url


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("s00=postgresql://u:sekret@a/d s01", "shard s01 has no address"),
        ("s00=postgresql://u:sekret@a/d s01=", "shard s01 has no address"),
        ("postgresql://u:sekret@a/d", "an address is not a name such as s00"),
        ("s00:postgresql://u:sekret@a/d", "an address is not a name such as s00"),
        ("S00=postgresql://u:sekret@a/d", "'S00' is not a name such as s00"),
        ("s00=postgresql://u:sekret@a/d s00=postgresql://u:sekret@b/d", "a name of its own"),
        ("s00=postgresql://u:sekret@a/d,s01=postgresql://u:sekret@b/d", "write a space between shards"),
    ],
)
def test_shards_that_are_written_wrongly_are_refused_without_their_passwords(
    monkeypatch: pytest.MonkeyPatch, text: str, why: str
) -> None:
    monkeypatch.setenv("HOLDFAST_SHARDS", text)
    with pytest.raises(ConfigurationError, match=why) as refused:
        Settings.load()
    assert "HOLDFAST_SHARDS" in str(refused.value)
    assert "sekret" not in "".join(format_exception(refused.value))


def test_a_misspelt_setting_in_pyproject_is_refused_with_the_names_that_exist() -> None:
    write_pyproject('hoem = "x"')
    with pytest.raises(ConfigurationError, match=r"unknown setting 'hoem'; did you mean 'home'\?"):
        Settings.load()


def test_a_bad_value_in_pyproject_is_refused_with_its_file(monkeypatch: pytest.MonkeyPatch) -> None:
    write_pyproject('worker_concurrency = "many"')
    with pytest.raises(ConfigurationError, match=r"^pyproject\.toml: worker_concurrency='many' cannot"):
        Settings.load()
    monkeypatch.setenv("WORKER_CONCURRENCY", "most")
    with pytest.raises(ConfigurationError, match=r"^WORKER_CONCURRENCY='most' cannot be used"):
        Settings.load()


def test_a_broken_pyproject_is_refused() -> None:
    Path("pyproject.toml").write_text("[tool.holdfast")
    with pytest.raises(ConfigurationError, match=r"pyproject\.toml cannot be read"):
        Settings.load()


def test_a_worker_may_not_count_as_dead_before_it_could_beat_twice() -> None:
    with pytest.raises(ConfigurationError, match=r"WORKER_TIMEOUT='15s' .* twice the heartbeat .* is 10s"):
        Settings.load(worker_timeout="15s")
    assert Settings.load(worker_timeout="15s", heartbeat="7s").worker_timeout == timedelta(seconds=15)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30", 30),
        ("0.5", 0.5),
        ("500ms", 0.5),
        ("30s", 30),
        ("5m", 300),
        ("2h", 7200),
        (" 1.5 m ", 90),
        (7, 7),
    ],
)
def test_a_duration_is_seconds_or_a_number_with_a_unit(text: object, seconds: float) -> None:
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "text", ["", "soon", "-1", "5 minutes", "1e9", "inf", "nan", "9" * 20, True, None, "٣"]
)
def test_what_is_not_a_duration_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match="give"):
        parse_duration(text)
