"""The tests of tests/app/test_reuse.py, on a front."""

from support.contract import borrow

globals().update(borrow("app/test_reuse"))
