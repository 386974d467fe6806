"""Days of an agent's work: what it noted, and functions that record it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import mica
from mica.testing import HandClock

MONDAY = datetime(2026, 11, 2, 9, tzinfo=UTC)


NOTES = (
    "The cookie is set before the redirect, so the session is lost on every login.",
    "Moved the cookie after the redirect in auth/session.py; all 42 tests pass now.",
    "Never set a cookie before a redirect: browsers drop it when the host changes.",
    "The staging deploy failed because the secret was missing in the vault.",
    "Added the secret to the vault and the deploy went through; login works on staging.",
    "The old cookie helper in utils/http.py is used by nobody and can go.",
)


OTHER = (
    "The invoice total is rounded twice, once in the cart and once in the mailer.",
    "Rounding happens in billing/money.py only; the mailer prints what it is given.",
    "Always keep amounts in cents until they are printed.",
    "The nightly report counted refunds as sales, so Monday's numbers were too high.",
    "Refunds have a type of their own in the ledger now, and the report leaves them out.",
    "Thirty invoices of October were sent again with the right total.",
)


def observe(memory: mica.Memory, clock: HandClock, session: str, *, texts: tuple[str, ...] = NOTES) -> list[mica.Ref]:
    """Record a session with one mark per minute."""
    refs = []
    with memory.context(session=session, agent="scout"):
        for text in texts:
            clock.move(minutes=1)
            refs.append(memory.mark(f"{text} ({session})"))
    return refs


async def crystallize_two_weeks(memory: mica.Memory, clock: HandClock) -> tuple[list[list[mica.Ref]], mica.Crystal]:
    """Record two weeks of marks and close them as a labelled epoch; returns the marks by week and the epoch."""
    refs: list[list[mica.Ref]] = []
    for week in range(2):
        refs.append([])
        for day, texts in enumerate((NOTES, OTHER)):
            clock.at = MONDAY + timedelta(weeks=week, days=day)
            refs[-1] += observe(memory, clock, f"week {week} day {day}", texts=texts)
    await memory.crystals.make(level="epoch", label="beginnings of hunter2")
    [epoch] = await memory.crystals.list(level="epoch")
    return refs, epoch
