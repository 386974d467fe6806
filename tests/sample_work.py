"""A sample space in which agents have worked for some weeks, for tests and screenshots.

Everything in it is made up. It is recorded through the public methods of `Memory`, so it obeys every law of the store.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from mica.memory import Memory
from mica.model.crystal import LEVELS
from mica.model.event import Ref
from mica.model.walk import OFFER, OUTCOME, Outcome


class Kind(msgspec.Struct, frozen=True):
    """A kind of task: its prompt, its files, and several sets of findings. Each session records one of the sets."""

    prompt: str
    paths: tuple[str, ...]
    findings: tuple[tuple[str, ...], ...]


KINDS = (
    Kind(
        "fix the login redirect that loses the session",
        ("auth/session.py", "auth/redirects.py", "tests/test_login.py"),
        (
            (
                "The session cookie is set before the redirect, and the proxy of production drops it on the way",
                "Cookies belong behind the last redirect, because proxies drop what comes before it",
                "Moved set_cookie behind the redirect in auth/session.py, and the tests of the login pass",
            ),
            (
                "A login from a bookmark is sent to the page of the last user, since the target is kept too long",
                "The target of a redirect is forgotten as soon as it was used",
                "Added a test that logs in twice with different targets",
            ),
            (
                "Sessions end after an hour even while a user types, because only page views count",
                "Every request with a session makes it young again, also those of scripts",
                "The hour is a setting now, and staging uses five minutes to find such faults",
            ),
        ),
    ),
    Kind(
        "add a discount to the checkout",
        ("shop/cart.py", "shop/pricing.py", "shop/checkout.py", "tests/test_pricing.py"),
        (
            (
                "Prices are rounded in pricing.py before the discount, so two discounts lose a cent",
                "Discounts are applied to the exact price and rounded once, at the end",
                "The checkout shows the discount as a line of its own, as the accountants asked",
            ),
            (
                "A coupon can be typed in twice, and both count",
                "A coupon is bound to a cart when it is accepted, and the database refuses the second",
                "The message says that the coupon is used already, not that it is unknown",
            ),
            (
                "Students were given their discount on gift cards, which the tax office forbids",
                "What a discount may apply to is a list in pricing.py, and gift cards are not on it",
                "Refunds use the price that was paid, never the one of today",
            ),
        ),
    ),
    Kind(
        "update the migration of the orders table",
        ("db/migrations/0042_orders.sql", "db/models.py", "db/migrate.py"),
        (
            (
                "The migration of orders locked the table for nine minutes on staging",
                "Large tables are migrated in batches of ten thousand rows, outside of the release",
                "Added a backfill that can be stopped and continues where it was",
            ),
            (
                "Two machines ran the same migration at once, and one of them failed half way",
                "The migrating process holds an advisory lock, and the others wait for it",
                "The order of migrations is checked when the program starts",
            ),
        ),
    ),
    Kind(
        "explain why the search is slow",
        ("search/index.py", "search/query.py", "docs/search.md"),
        (
            (
                "The search reads the whole index for every keystroke, which takes 400 ms",
                "A query waits 150 ms for the next key before it is asked",
                "The index is kept in memory now, and the first answer takes 12 ms",
            ),
            (
                "Words with accents are found only as they are typed, so Café and cafe are two words",
                "Accents are folded in both the index and the query",
                "Wrote down in docs/search.md how words are folded and split",
            ),
        ),
    ),
)
NOW = "now"  # the name of the session that is still active
AGENTS = ("claude-code", "codex", "gemini-cli")
ELSEWHERE = ("clock", "money", "texts", "settings")  # unrelated files that are also read
OPEN = (
    ("Who may see the orders of a deleted customer?", "question"),
    ("The importer stops at files over 2 GB, and we do not know why", "friction"),
    ("Write down how the discounts are rounded", "todo"),
)


async def work(memory: Memory, *, now: datetime, weeks: int = 5, offers: bool = True) -> None:
    """Record some weeks of work by three agents on four kinds of tasks, with crystals, trails and two briefs.

    The same arguments record the same work. With `offers`, hooks have offered files to the sessions.
    """
    draw = random.Random(7)  # the same space every time
    begins = now - timedelta(weeks=weeks)
    for day in range(7 * weeks - 1):
        morning = begins + timedelta(days=day)
        for turn in range(0 if morning.weekday() >= 5 else draw.choice((1, 2, 2, 3))):
            _task(memory, draw, at=morning + timedelta(hours=2 * turn), session=f"day-{day}-{turn}", offers=offers)
    for hours in (4, 2):
        _task(memory, draw, at=now - timedelta(hours=hours), session=f"today-{hours}", offers=offers)
    last = _task(memory, draw, at=now - timedelta(minutes=12), session=NOW, offers=offers)
    for text, tag in OPEN:
        memory.mark(text, tags=(tag,), context=memory.here.context.with_(session=NOW, agent=AGENTS[0]), parent=last)
    for level in LEVELS[:3]:
        await memory.crystals.make(level=level)
    await memory.trails.evolve()
    with memory.context(session=NOW, agent=AGENTS[0]):
        for trail in await memory.trails.list(state="crystallized", limit=2):
            await memory.trails.track(trail, outcome="success", tokens=trail.tokens)
        await memory.brief("login redirect", deadline_s=5)
        await memory.brief(deadline_s=5)


def _task(memory: Memory, draw: random.Random, *, at: datetime, session: str, offers: bool) -> Ref:
    kind = draw.choices(KINDS, weights=(5, 4, 3, 2))[0]
    paths = kind.paths
    agent = draw.choices(AGENTS, weights=(5, 3, 1))[0]
    here = memory.here.context.with_(session=session, agent=agent)
    failed = draw.random() < 0.03
    outcome: Outcome = "failure" if failed else "success"
    held_out = draw.random() < 0.4
    searches = draw.choice((1, 2, 3)) if held_out or not offers else draw.choice((0, 0, 0, 1))
    steps: list[dict[str, object]] = [
        {"path": paths[0].partition("/")[0], "operation": "search", "tokens": draw.randrange(300, 900)}
        for _ in range(searches)
    ]
    for path in paths if draw.random() < 0.8 else (*paths, f"lib/{draw.choice(ELSEWHERE)}.py"):
        tokens = draw.randrange(400, 1_400)
        steps.append({"path": path, "operation": "read", "start_line": 1, "end_line": 80, "tokens": tokens})
    steps.append({"path": paths[0], "operation": "edit"})
    walk = memory.trails.record(kind.prompt, steps, session=session, agent=agent, at=at)
    memory.emit(OUTCOME, {"outcome": outcome}, parent=walk, context=here, origin="user", at=at + timedelta(minutes=8))
    if offers:
        offered = ["README.md"] if draw.random() < 0.15 else list(paths[:2])
        offer = {"paths": offered, "tokens": 60, "held_out": held_out}
        memory.emit(OFFER, offer, parent=walk, context=here, origin="tool", at=at)
    command = {"command": "pytest -q", "call": session}
    memory.emit("shell.run", command, parent=walk, context=here, origin="tool", at=at, error=failed)
    _observe(memory, draw.choice(kind.findings), walk, at=at, session=session, agent=agent)
    if session != NOW:
        memory.emit("session.ended", {}, context=here, origin="tool", at=at + timedelta(minutes=9))
    return walk


def _observe(memory: Memory, texts: Sequence[str], walk: Ref, *, at: datetime, session: str, agent: str) -> None:
    here = memory.here.context.with_(session=session, agent=agent)
    parent = walk
    for number, text in enumerate(texts):
        parent = memory.mark(
            text, tags=("finding",), parent=parent, context=here, at=at + timedelta(minutes=number + 1)
        )
