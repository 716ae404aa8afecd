"""Executors: run a task outside the worker itself, in a child process, a command or the database."""
