"""Counts and weights of units: which words a digest should cover."""

from __future__ import annotations

from tests.crystals.digest_sources import SESSION, source, sources_of

from mica.crystals.digest import count_mentions, extract
from mica.crystals.salience import load_table, merge


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
