"""A server that behaves like Twilio's Messages API: accounts, numbers, errors."""

import json
import re
from base64 import b64encode
from dataclasses import dataclass
from urllib.parse import parse_qsl
from uuid import uuid4

from support.provider_server import Answer, Fault, ProviderServer, Request

ACCOUNT = "AC" + "0" * 32
TOKEN = "a-token-for-tests"  # noqa: S105 - guards nothing
STOPPED = "+15005550009"
"""Has answered STOP, and gets nothing any more."""

_NUMBER = re.compile(r"\+[1-9]\d{6,14}")


@dataclass(frozen=True)
class Delivery:
    sid: str
    to: str
    sender: str
    body: str


class TwilioServer(ProviderServer):
    """`delivered` has what reached somebody: the same message twice, if it was asked for twice."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = {"+15005550006"}
        self.delivered: list[Delivery] = []

    def explain(self, fault: Fault) -> bytes:
        return _problem(fault.status or 500, int(fault.code or 20500), "told to fail").body

    def carry_out(self, request: Request) -> Answer:
        if (request.method, request.path) != ("POST", f"/2010-04-01/Accounts/{ACCOUNT}/Messages.json"):
            return _problem(404, 20404, f"the resource {request.path} was not found")
        if (
            request.headers.get("authorization")
            != f"Basic {b64encode(f'{ACCOUNT}:{TOKEN}'.encode()).decode()}"
        ):
            return _problem(401, 20003, "authenticate")
        form = dict(parse_qsl(request.body.decode(), keep_blank_values=True))
        return self._problem_with(form) or self._send(form)

    def _problem_with(self, form: dict[str, str]) -> Answer | None:
        to, sender, body = form.get("To", ""), form.get("From", ""), form.get("Body", "")
        if not _NUMBER.fullmatch(to):
            return _problem(400, 21211, f"the number {to} is not valid")
        if to == STOPPED:
            return _problem(400, 21610, "the recipient has unsubscribed")
        if sender.startswith("+") and sender not in self.numbers:
            return _problem(400, 21606, f"{sender} is not a number of this account")
        if not sender and "MessagingServiceSid" not in form:
            return _problem(400, 21603, "a sender is required")
        if len(body) > 1600:
            return _problem(400, 21617, "the body is too long")
        return None

    def _send(self, form: dict[str, str]) -> Answer:
        sid = f"SM{uuid4().hex}"
        sender = form.get("From") or form["MessagingServiceSid"]
        self.delivered.append(Delivery(sid, form["To"], sender, form["Body"]))
        return Answer(
            201,
            json.dumps({"sid": sid, "status": "queued", "num_segments": "1", "error_code": None}).encode(),
        )


def _problem(status: int, code: int, message: str) -> Answer:
    body = {
        "code": code,
        "message": message,
        "more_info": f"https://www.twilio.com/docs/errors/{code}",
        "status": status,
    }
    return Answer(status, json.dumps(body).encode())
