"""Connections to the database: pools, the listener, transactions of other libraries, those of a worker."""
