"""The tests of tests/cli/test_tokens.py, on a front."""

from support.contract import borrow

globals().update(borrow("cli/test_tokens"))
