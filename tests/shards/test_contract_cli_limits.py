"""The tests of tests/cli/test_limits.py, on a front."""

from support.contract import borrow

globals().update(borrow("cli/test_limits"))
