"""The request bodies of POST /v1/tasks and /v1/tasks/batch, built from the declaration of the options."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, StringConstraints, create_model

from holdfast.options import Option, parameters
from holdfast.server.schemas import NAME_RULE, TIME, WHOLE, Json, Name, Payload, Strict

_TaskId = Annotated[
    str,
    StringConstraints(pattern=r"^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$", strict=True),
    Field(json_schema_extra={"format": "uuid"}),
]
_SINGLE = "idempotency_key"
"""Of a single task, the key is a header: Idempotency-Key."""

_EXCLUSIVE = [
    ["run_at", "delay"],
    ["run_at", "debounce"],
    ["delay", "debounce"],
    ["after", "unique"],
    ["after", "debounce"],
    ["unique", "debounce"],
]
_NEEDED: dict[str, Any] = {"when": ["after"], "debounce_max": ["debounce"]}


class _Request(Strict):
    """A task to enqueue. Options that are left out have the defaults of the type, then of the engine."""

    type: Annotated[Name, Field(examples=["billing.invoice_charge.v1"], json_schema_extra=NAME_RULE)]
    payload: Annotated[Payload, Field(examples=[{"invoice": 7}])] = None


def request_models() -> tuple[type[BaseModel], type[BaseModel]]:
    """The body of a single task, and an element of a batch."""
    fields: dict[str, Any] = {
        name: (_annotation(option), None) for name, option in parameters().items() if option.http
    }
    key = {_SINGLE: fields.pop(_SINGLE)}
    single = create_model("NewTask", __base__=_Request, __doc__=_Request.__doc__, **fields)
    single.model_config["json_schema_extra"] = _rules(_NEEDED)
    batch = create_model("NewBatchTask", __base__=single, __doc__="A task of a batch.", **key)
    batch.model_config["json_schema_extra"] = _rules(_NEEDED | {"unique": [_SINGLE], "debounce": [_SINGLE]})
    return single, batch


def _rules(needed: dict[str, Any]) -> dict[str, Any]:
    """Which options exclude each other, and which need another."""
    return {"not": {"anyOf": [{"required": pair} for pair in _EXCLUSIVE]}, "dependentRequired": needed}


def whole_numbers() -> tuple[str, ...]:
    """The options that are whole numbers in JSON."""
    return tuple(name for name, option in parameters().items() if option.kind in ("integer", "duration"))


def _annotation(option: Option) -> Any:
    """The type of an option in a request. The engine checks what a schema cannot express."""
    rules = option.schema
    described: dict[str, Any] = {"description": option.help.replace("`", ""), "examples": rules["examples"]}
    match option.kind:
        case "name":
            return Annotated[Name, Field(**described, json_schema_extra=NAME_RULE)]
        case "integer" | "duration":
            if option.kind == "duration":
                described["description"] += " In seconds."
            return Annotated[int, Field(**described, ge=rules["minimum"], le=rules["maximum"]), WHOLE]
        case "time":
            return Annotated[
                str, Field(**described, json_schema_extra={"format": "date-time", "pattern": TIME})
            ]
        case "tasks" | "document":
            kind: Any = list[_TaskId] if option.kind == "tasks" else dict[str, Json]
            return Annotated[
                kind, Field(**described, max_length=rules.get("maxItems", rules.get("maxProperties")))
            ]
    if "enum" in rules:
        return Annotated[Literal[tuple(rules["enum"])], Field(**described)]
    length = StringConstraints(min_length=rules["minLength"], max_length=rules["maxLength"], strict=True)
    return Annotated[str, length, Field(**described, json_schema_extra={"pattern": rules["pattern"]})]
