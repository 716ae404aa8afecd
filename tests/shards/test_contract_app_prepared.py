"""The tests of tests/app/test_prepared.py, on a front."""

from support.contract import borrow

globals().update(borrow("app/test_prepared"))
