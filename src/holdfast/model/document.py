"""JSON documents, decoded or as text."""

from typing import Annotated, Any

Json = Annotated[Any, "a document, decoded"]


class RawJson(str):
    """JSON that is text already: sent as it is, with every digit."""

    __slots__ = ()
