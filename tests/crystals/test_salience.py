"""Counts and weights of units: which words a digest should cover."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from hypothesis import strategies as st

from mica.crystals.digest import DigestSource, count_mentions, extract
from mica.crystals.salience import load_table, merge
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


anything = st.lists(
    st.builds(
        DigestSource,
        id=st.integers(0, 12).map("m{}".format),
        text=st.one_of(
            st.text(max_size=200),
            st.lists(
                st.sampled_from("die Κρύσταλλος мысль 水晶は 记忆 الذاكرة. fix! a_b c.py: \n - … \x00 🙂".split(" "))
            ).map(" ".join),
        ),
        tags=st.lists(st.sampled_from(["prompt", "commit", "error", "decision", "x"]), max_size=2).map(tuple),
        at=st.none(),
        weight=st.floats(0, 50),
    ),
    max_size=12,
)


def test_counts_of_parts_add_up_to_the_count_of_the_whole() -> None:
    """keeps: B-18. A level sums the counts of the level below."""
    marks = sources_of([text for _, text in SESSION])

    assert merge([count_mentions(marks[:4]), count_mentions(marks[4:])]) == count_mentions(marks)
    assert merge([]) == count_mentions([])


def test_the_word_table_ships_complete() -> None:
    table = load_table()

    assert len(table.weights) > 20
    assert 1_000 < len(table.words) < 2_000
    assert all(0 < rarity < 1 for rarity, _ in table.words.values())
    assert table.rarity("zzz") == table.rare


def test_a_known_tag_makes_a_mark_weigh_more() -> None:
    """keeps: B-46.

    Of two equally long marks the decision is chosen over the command; an unknown tag changes nothing.
    """
    first, second = (
        "The login service keeps its sessions in Redis.",
        "The search service keeps its indexes in Postgres.",
    )
    room = 14

    def insight(*tags: str) -> list[str]:
        marks = [
            source(f"m{number}", text, (tag,))
            for number, (text, tag) in enumerate(zip((first, second), tags, strict=True))
        ]
        return [statement.text for statement in extract(marks, budget_tokens=room).insight]

    assert insight("decision", "command") == [first]
    assert insight("command", "decision") == [second]
    assert insight("anything", "else") == insight("", "")
