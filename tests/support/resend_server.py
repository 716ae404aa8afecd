"""A server that behaves like Resend's API: keys, domains, addresses, idempotency, errors."""

import json
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from support.provider_server import Answer, Fault, ProviderServer, Request

API_KEY = "re_a_key_for_tests"


@dataclass(frozen=True)
class Delivery:
    id: str
    key: str | None
    email: dict[str, Any]


class ResendServer(ProviderServer):
    """`delivered` has what reached somebody. A key that it has seen delivers nothing more."""

    def __init__(self) -> None:
        super().__init__()
        self.domains = {"example.com"}
        self.delivered: list[Delivery] = []
        self._by_key: dict[str, tuple[bytes, str]] = {}

    def forget_keys(self) -> None:
        self._by_key.clear()

    def explain(self, fault: Fault) -> bytes:
        return _problem(fault.status or 500, fault.code or "application_error", "told to fail").body

    def carry_out(self, request: Request) -> Answer:
        if (request.method, request.path) != ("POST", "/emails"):
            return _problem(404, "not_found", f"no endpoint {request.path}")
        refusal = _authorize(request.headers.get("authorization"))
        return refusal or self._send(request)

    def _send(self, request: Request) -> Answer:
        key = request.headers.get("idempotency-key")
        if key is not None and not 1 <= len(key) <= 256:
            return _problem(400, "invalid_idempotency_key", "1 to 256 characters")
        if key in self._by_key:
            body, known = self._by_key[key]
            if body != request.body:
                return _problem(409, "invalid_idempotent_request", "the key was used with another payload")
            return _taken(known)
        email = json.loads(request.body)
        problem = self._problem_with(email)
        if problem:
            return problem
        delivery = Delivery(str(uuid4()), key, email)
        self.delivered.append(delivery)
        if key is not None:
            self._by_key[key] = (request.body, delivery.id)
        return _taken(delivery.id)

    def _problem_with(self, email: dict[str, Any]) -> Answer | None:
        missing = {"from", "to", "subject"} - email.keys()
        if missing or not email.keys() & {"text", "html"}:
            return _problem(422, "missing_required_field", f"missing: {sorted(missing) or 'text or html'}")
        domain = email["from"].rstrip(">").rpartition("@")[2]
        if domain not in self.domains:
            return _problem(403, "validation_error", f"the domain {domain} is not verified")
        if not all(to.count("@") == 1 and "," not in to for to in email["to"]):
            return _problem(422, "validation_error", "invalid `to` field")
        return None


def _authorize(given: str | None) -> Answer | None:
    if given is None:
        return _problem(401, "missing_api_key", "no key")
    if given != f"Bearer {API_KEY}":
        return _problem(403, "invalid_api_key", "another key")
    return None


def _taken(message_id: str) -> Answer:
    return Answer(200, json.dumps({"id": message_id}).encode())


def _problem(status: int, name: str, message: str) -> Answer:
    return Answer(status, json.dumps({"statusCode": status, "name": name, "message": message}).encode())
