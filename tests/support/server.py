"""Servers that live as long as the tests that use them."""

from holdfast.testing.server import DISPOSABLE, disposable_home, disposable_server

__all__ = ["DISPOSABLE", "disposable_home", "disposable_server"]
