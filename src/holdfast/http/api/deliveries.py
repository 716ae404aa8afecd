"""POST /v1/deliveries/{provider}: reports of providers about the messages that they took over."""

from typing import Any

from fastapi import APIRouter, Request, Response

from holdfast.comms.delivery_reports import MAX_REPORT_BYTES
from holdfast.engine import messages
from holdfast.errors import InvalidSignature
from holdfast.http.api.openapi_parts import problem
from holdfast.http.problem import Problem
from holdfast.http.site import site_of

router = APIRouter(tags=["deliveries"])

_BODY: dict[str, Any] = {
    "requestBody": {
        "description": "As the provider writes it.",
        "content": {
            "application/json": {"schema": {"type": "object"}},
            "application/x-www-form-urlencoded": {"schema": {"type": "object"}},
        },
    }
}


@router.post(
    "/deliveries/{provider}",
    status_code=204,
    summary="Record what a provider reports about a message",
    response_class=Response,
    responses={status: problem(status) for status in (400, 403, 404, 413, 503)},
    openapi_extra=_BODY,
)
async def record_delivery(request: Request, provider: str) -> Response:
    """For providers, by the signature of the request instead of a token. A report about a message that is not
    known here, or that says nothing about its delivery, is accepted and ignored.
    """
    site = site_of(request)
    reader = site.options.report_readers.get(provider)
    if reader is None:
        raise Problem(
            404,
            "this server takes no delivery reports of that provider",
            hint="Set HOLDFAST_RESEND_WEBHOOK_SECRET, or HOLDFAST_TWILIO_STATUS_CALLBACK and the auth token.",
        )
    try:
        report = reader.read(request.headers, await _bytes(request))
    except InvalidSignature as error:
        raise Problem(403, str(error), code="invalid_signature") from None
    if report is not None:
        found = report
        await site.operate(
            None,
            lambda engine: engine.run(
                messages.record_delivery(provider, found.message_id, found.delivery, found.reason)
            ),
        )
    return Response(status_code=204)


async def _bytes(request: Request) -> bytes:
    taken = bytearray()
    async for chunk in request.stream():
        taken += chunk
        if len(taken) > MAX_REPORT_BYTES:
            raise Problem(
                413, f"the body is larger than {MAX_REPORT_BYTES} bytes", headers={"Connection": "close"}
            )
    return bytes(taken)
