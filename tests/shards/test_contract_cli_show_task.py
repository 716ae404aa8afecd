"""The tests of tests/cli/test_show_task.py, on a front."""

from support.contract import borrow

globals().update(borrow("cli/test_show_task"))
