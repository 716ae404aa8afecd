"""A pytest plugin for projects that use Holdfast: `pytest_plugins = ["holdfast.testing"]` in conftest.py.

PYTEST_DONT_REWRITE: there are no assertions here, and a conftest may import this before it names the plugin.
"""

from contextlib import suppress

from holdfast.testing.clock import Clock
from holdfast.testing.drain import DrainLimitReached, Ran
from holdfast.testing.interruptions import ReplayDiffers
from holdfast.testing.sandbox import Sandbox
from holdfast.testing.server import Server

with suppress(ModuleNotFoundError):  # the rest works in other test runners, too
    from holdfast.testing.fixtures import holdfast, holdfast_databases, holdfast_prepare, holdfast_server

__all__ = [
    "Clock",
    "DrainLimitReached",
    "Ran",
    "ReplayDiffers",
    "Sandbox",
    "Server",
    "holdfast",
    "holdfast_databases",
    "holdfast_prepare",
    "holdfast_server",
]
