"""The tests of tests/cli/test_task_actions.py, on a front."""

from support.contract import borrow

globals().update(borrow("cli/test_task_actions"))
