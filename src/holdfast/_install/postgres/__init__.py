"""The embedded PostgreSQL: an unprivileged server, reachable only through a private Unix socket."""
