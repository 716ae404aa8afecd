"""The tests of tests/cli/test_replay.py, on a front."""

from support.contract import borrow

globals().update(borrow("cli/test_replay"))
