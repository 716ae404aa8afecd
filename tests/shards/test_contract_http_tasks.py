"""The tests of tests/http/test_tasks.py, on a front."""

from support.contract import borrow

globals().update(borrow("http/test_tasks"))
