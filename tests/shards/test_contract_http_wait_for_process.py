"""The tests of tests/http/test_wait_for_process.py, on a front."""

from support.contract import borrow

globals().update(borrow("http/test_wait_for_process"))
