"""The tests of tests/cli/test_enqueue.py, on a front."""

from support.contract import borrow

globals().update(borrow("cli/test_enqueue"))
