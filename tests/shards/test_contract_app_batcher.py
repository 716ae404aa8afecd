"""The tests of tests/app/test_batcher.py, on a front."""

from support.contract import borrow

globals().update(borrow("app/test_batcher"))
