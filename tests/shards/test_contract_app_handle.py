"""The tests of tests/app/test_handle.py, on a front."""

from support.contract import borrow

globals().update(borrow("app/test_handle"))
