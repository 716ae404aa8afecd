"""The tests of tests/cli/test_list_tasks.py, on a front."""

from support.contract import borrow

globals().update(borrow("cli/test_list_tasks"))
