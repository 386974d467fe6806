"""Sources of a digest: the marks of a session, and functions that make sources of texts."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from mica.crystals.digest import DigestSource
from mica.model.event import EventId

SESSION = (
    ("prompt", "Login loses the session after the redirect. Please find out why and fix it."),
    ("narration", "Let me look at the session code first."),
    ("narration", "The cookie is set before the redirect. The proxy strips every header of a 302 answer."),
    ("edit", "Edited auth/session.py"),
    ("error", "Exit code 1\ntests/test_session.py::test_redirect FAILED"),
    ("decision", "Set the session cookie after the redirect, because the proxy strips headers of a 302."),
    ("edit", "Edited auth/session.py"),
    ("narration", "Now let me run the tests."),
    ("narration", "All 14 tests of test_session.py pass, and login keeps the session."),
    ("commit", "Set the session cookie after the redirect (#12)"),
    ("note", "Never set a cookie on a redirect behind this proxy."),
)


def source(name: str, text: str, tags: tuple[str, ...] = (), at: datetime | None = None) -> DigestSource:
    return DigestSource(EventId(name), text, tags, at)


def sources_of(texts: Sequence[str]) -> list[DigestSource]:
    return [source(f"m{number}", text) for number, text in enumerate(texts)]
