"""Installs the engine in a database, and starts the embedded PostgreSQL."""
