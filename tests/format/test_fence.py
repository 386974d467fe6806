"""The fence around recalled text."""

from __future__ import annotations

import pytest

from mica.format.fence import strip_remedy


@pytest.mark.parametrize(
    ("reason", "shortened"),
    [
        ("no answer within 80 ms", "no answer within 80 ms"),
        ("http://127.0.0.1:9/a/b answers 503; is it running?", "http://127.0.0.1:9/a/b answers 503"),
        ("OSError: [Errno 13] Permission denied: '/etc/shop/key'", "OSError: [Errno 13] Permission denied: 'key'"),
        (r"C:\shop\state.json cannot be read", "state.json cannot be read"),
        ("~/shop/state.json cannot be read", "state.json cannot be read"),
        ("3 of 4 rows and/or lines", "3 of 4 rows and/or lines"),
    ],
)
def test_a_reason_for_an_agent_has_no_folder_and_no_remedy(reason: str, shortened: str) -> None:
    assert strip_remedy(reason) == shortened
