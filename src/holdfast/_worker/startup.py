"""Checks before a worker starts, so that a wrong setting does not cost tasks their attempts."""

import importlib.util
import os
import pwd
import subprocess
import sys

from holdfast._worker.origin import find_origin
from holdfast._worker.subscription import MAILBOX, WorkerApp, serves, serves_messages, subscribed
from holdfast.errors import ConfigurationError, HoldfastError
from holdfast.isolation.command import command_for
from holdfast.isolation.command_run import find_program
from holdfast.messages.message_checks import check_sms_sender, parse_address
from holdfast.messages.providers import email_provider, sms_provider
from holdfast.settings import Settings, variable_of
from holdfast.settings.commands import Command


def check_settings(settings: Settings) -> None:
    """Raise ConfigurationError for the first setting that cannot be used on this machine."""
    if settings.process_user is not None:
        place = _named("process_user", settings.process_user)
        _check_account(place, settings.process_user)
        _check_interpreter(place, settings.process_user)
    for name, command in settings.commands.items():
        _check_command(name, command)
    if "templates" in settings.model_fields_set and not os.access(settings.templates, os.R_OK | os.X_OK):
        raise ConfigurationError(
            f"{_named('templates', settings.templates)}: it is not a directory that this account can read",
            hint="Give the directory of the templates of messages, or leave it out.",
        )
    _check_senders(settings)


def check_application(app: WorkerApp, settings: Settings) -> None:
    """Raise ConfigurationError if the worker could not run tasks that it would claim."""
    settings = subscribed(app, settings)
    for handler in app.handlers.values():
        if not serves(settings, handler):
            continue
        if handler.executor == "command" and command_for(handler.type, settings.commands) is None:
            raise ConfigurationError(
                f"no command runs {handler.type}, which is declared with executor='command'",
                hint="Add one to [tool.holdfast.commands] whose types name it, or do not serve its queue.",
            )
        if handler.executor == "ray" and importlib.util.find_spec("ray") is None:
            raise ConfigurationError(
                f"Ray is not installed, and {handler.type} is declared with executor='ray'",
                hint="Install the extra: pip install 'holdfast-pg[ray]'",
            )
        if handler.executor in ("process", "ray") and find_origin(app, app.origin) is None:
            raise ConfigurationError(
                f"no child process could import the application, and {handler.type} is declared with "
                f"executor={handler.executor!r}",
                hint="Make the App a global name of a module.",
            )


async def check_providers(settings: Settings) -> None:
    """Raise ConfigurationError if this worker serves messages and a provider cannot be used."""
    if not serves_messages(settings):
        return
    for name, find in (("email_provider", email_provider), ("sms_provider", sms_provider)):
        if getattr(settings, name) == MAILBOX:
            continue
        try:
            provider = find(settings)
        except ImportError as error:
            raise ConfigurationError(f"{_named(name, getattr(settings, name))}: {error}") from error
        await provider.close()


def _check_command(name: str, command: Command) -> None:
    place = f"commands.{name}"
    if command.directory is not None and not command.directory.is_dir():
        raise ConfigurationError(
            f"{place}.directory {str(command.directory)!r} cannot be used: it is not a directory"
        )
    if find_program(command.argv[0], command.directory) is None:
        raise ConfigurationError(
            f"{place}.argv {command.argv[0]!r} cannot be used: there is no such program",
            hint="Give a path to a file that may be executed, a name in PATH, or python.",
        )
    if command.user is not None:
        _check_account(f"{place}.user {command.user!r} cannot be used", command.user)


def _check_account(place: str, user: str) -> None:
    try:
        pwd.getpwnam(user)
    except (KeyError, ValueError):
        raise ConfigurationError(
            f"{place}: this machine has no such account", hint="Give the name of an account that exists."
        ) from None
    if os.geteuid() != 0:
        raise ConfigurationError(
            f"{place}: only root can start processes of another account",
            hint="Start the worker as root, or leave it out.",
        )


def _check_interpreter(place: str, user: str) -> None:
    """A child process runs this Python in this directory with the rights of the account."""
    account, directory = pwd.getpwnam(user), os.getcwd()  # noqa: PTH109 - the text is passed on
    program = [sys.executable, "-I", "-S", "-c", "import os, sys; os.chdir(sys.argv[1])", directory]
    try:
        subprocess.run(
            program,
            user=account.pw_uid,
            group=account.pw_gid,
            extra_groups=[],
            check=True,
            capture_output=True,
        )
    except (OSError, subprocess.SubprocessError):
        raise ConfigurationError(
            f"{place}: this account cannot run {sys.executable} in {directory}",
            hint="Let it read both, or give another account.",
        ) from None


def _check_senders(settings: Settings) -> None:
    for name, check in (("email_sender", parse_address), ("sms_sender", check_sms_sender)):
        value = getattr(settings, name)
        if value is None:
            continue
        try:
            check("sender", value)
        except HoldfastError as error:
            raise ConfigurationError(f"{_named(name, value)}: {error.message}") from None


def _named(setting: str, value: object) -> str:
    return f"{variable_of(setting)}={str(value)!r} cannot be used"
