"""A name or directory that is not UTF-8 was answered with Python's words about codecs and
surrogates.
"""

from __future__ import annotations

import pytest

from gsched.wire.codec import encode
from gsched.wire.messages import JobQuery


@pytest.mark.parametrize("raw", [b"gr\xf6", b"\xff", b"/home/\xe9t\xe9"])
def test_the_sentence_names_the_text(raw: bytes) -> None:
    text = raw.decode("utf-8", "surrogateescape")
    with pytest.raises(ValueError) as caught:
        encode(JobQuery(ids=[text]))
    assert str(caught.value) == f"this is not UTF-8 text: {ascii(raw)[2:-1]}"
