"""Connections to the database: pools, worker connections, the listener, transactions of callers."""
