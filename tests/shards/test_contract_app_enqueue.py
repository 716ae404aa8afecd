"""The tests of tests/app/test_enqueue.py, on a front."""

from support.contract import borrow

globals().update(borrow("app/test_enqueue"))
