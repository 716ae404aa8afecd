"""The payloads of the benchmarks."""

import json
import zlib

import pytest
from benchmarks.documents import document, documents


@pytest.mark.parametrize("size", [1_000, 10_000, 100_000])
def test_a_document_has_the_size_that_was_asked_for(size: int) -> None:
    assert size <= len(json.dumps(document(size, 0))) < size + 400


def test_documents_differ_and_do_not_compress_to_nothing() -> None:
    written = [json.dumps(each).encode() for each in documents(10_000)]
    assert len(set(written)) == len(written)
    assert min(len(zlib.compress(each)) / len(each) for each in written) > 0.15
