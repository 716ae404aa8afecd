"""Delivery reports: providers post here whether a message was delivered."""

from typing import Any

from fastapi import APIRouter, Request, Response

from holdfast._engine import messages
from holdfast.errors import InvalidSignature
from holdfast.messages.delivery_reports import MAX_REPORT_BYTES
from holdfast.server.openapi import problem
from holdfast.server.problem import Problem
from holdfast.server.site import site_of

router = APIRouter(tags=["deliveries"])

_BODY: dict[str, Any] = {
    "requestBody": {
        "description": "In the format of the provider.",
        "content": {
            "application/json": {"schema": {"type": "object"}},
            "application/x-www-form-urlencoded": {"schema": {"type": "object"}},
        },
    }
}


@router.post(
    "/deliveries/{provider}",
    status_code=204,
    summary="Record a delivery report of a provider",
    response_class=Response,
    responses={status: problem(status) for status in (400, 403, 404, 413, 503)},
    openapi_extra=_BODY,
)
async def record_delivery(request: Request, provider: str) -> Response:
    """The signature of the provider replaces the access token. A report about an unknown message, or one
    without a delivery status, is accepted and ignored.
    """
    site = site_of(request)
    reader = site.options.report_readers.get(provider)
    if reader is None:
        raise Problem(
            404,
            "this server accepts no delivery reports from this provider",
            hint="Set HOLDFAST_RESEND_WEBHOOK_SECRET, or HOLDFAST_TWILIO_STATUS_CALLBACK and the auth token.",
        )
    try:
        report = reader.read(request.headers, await _read_body(request))
    except InvalidSignature as error:
        raise Problem(403, str(error), code="invalid_signature") from None
    if report is not None:
        found = report
        await site.operate(
            None,
            messages.record_delivery(provider, found.message_id, found.delivery, found.reason),
        )
    return Response(status_code=204)


async def _read_body(request: Request) -> bytes:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_REPORT_BYTES:
            raise Problem(
                413, f"the body is larger than {MAX_REPORT_BYTES} bytes", headers={"Connection": "close"}
            )
    return bytes(body)
