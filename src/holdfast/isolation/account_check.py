"""Checks that runs can be started as another account, before a worker starts."""

import os
import pwd
import subprocess
import sys

from holdfast.errors import ConfigurationError


def check_account(place: str, user: str) -> None:
    """Raise ConfigurationError, which begins with the place of the name."""
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


def check_interpreter(place: str, user: str) -> None:
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
