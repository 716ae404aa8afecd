"""The command line. Each module has a `register` function that adds its commands."""

from holdfast.cli.command_line import main

__all__ = ["main"]
