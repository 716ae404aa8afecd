"""Durable workflows: what a run remembers, and how its steps, sleeps and waits use that.

A run is a task whose handler has steps. `Run` has the calls of one attempt, as generators of operations. A
`Driver` performs these: it awaits in an event loop, blocks a thread or child process, or answers from memory.
It reaches the database through a `Journal`, because a handler may run in the worker, elsewhere or in a test.
"""
