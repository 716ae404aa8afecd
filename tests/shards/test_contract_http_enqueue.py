"""The tests of tests/http/test_enqueue.py, on a front."""

from support.contract import borrow

globals().update(borrow("http/test_enqueue"))
