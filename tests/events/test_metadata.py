"""The metadata of events, from texts that a trace may have for them."""

from __future__ import annotations

import pytest

from opspan.events.metadata import _FIELDS, metadata_of


@pytest.mark.parametrize("key", _FIELDS)
@pytest.mark.parametrize("text", ["x", "", "[1", "[" * 3_000, "9" * 5_000, "nan"])
def test_a_text_that_is_no_such_value_tells_nothing(key: str, text: str) -> None:
    found = metadata_of({key: text, "stream": "7"} if key != "stream" else {key: text, "context": "7"})

    assert found is not None
    assert 7 in (found.stream, found.context)
