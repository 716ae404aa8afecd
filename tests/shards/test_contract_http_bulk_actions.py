"""The tests of tests/http/test_bulk_actions.py, on a front."""

from support.contract import borrow

globals().update(borrow("http/test_bulk_actions"))
