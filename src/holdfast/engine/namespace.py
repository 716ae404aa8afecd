"""Statements about namespaces: whose tasks, idempotency keys, inbox events and schedules these are."""

from holdfast.engine.statement import Statement, call, columns_of, many, scalar, text
from holdfast.model import NamespaceMember


def namespace() -> Statement[str]:
    """That of the connection's login."""
    return call("queues.namespace", scalar, {})


def add_to_namespace(login: str, namespace: str, reason: str | None = None) -> Statement[bool]:
    """For administrators. Returns false if the login uses that namespace already."""
    arguments = {"login": text(login), "namespace": text(namespace), "reason": text(reason)}
    return call("queues.add_to_namespace", scalar, arguments)


def remove_from_namespace(login: str, reason: str | None = None) -> Statement[bool]:
    """For administrators. Returns false if the login has its own namespace already."""
    return call("queues.remove_from_namespace", scalar, {"login": text(login), "reason": text(reason)})


def namespace_members() -> Statement[list[NamespaceMember]]:
    """Logins that share a namespace, and tokens."""
    sql = f"select {columns_of(NamespaceMember)} from queues.namespace_member answer order by 1, 2, 3"  # noqa: S608 - our names only
    return Statement(sql, (), many(NamespaceMember))
