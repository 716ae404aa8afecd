"""Durable workflows: what a run remembers, and how its steps, sleeps and waits use that.

A run is a task whose handler has steps. `Run` is its state during one attempt; `AsyncRun` serves coroutines,
`BlockingRun` plain functions. Both reach the database only through a `Journal`, because a handler may run in
the worker's event loop, in a thread, in a child process or in a test.
"""
