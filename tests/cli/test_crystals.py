"""mica crystals."""

from __future__ import annotations

import asyncio

import pytest
from tests.cli.terminal import StoreTerminal
from tests.crystals.test_teachings import RULES

import mica
from mica.model.crystal import Crystal


def test_a_crystal_is_promoted_listed_and_withdrawn(store_terminal: StoreTerminal) -> None:
    """keeps: B-30, B-65, TB-14"""
    crystal = store_terminal.crystal()

    promoted = store_terminal.listed("crystals", "promote", f"#{crystal.position}", "--reason", "it cost us a day")
    listed = store_terminal.listed("crystals", "teachings")

    assert promoted[0]["source"] == f"witness:crystal:{crystal.id}"
    assert listed == promoted
    assert (listed[0]["by"], listed[0]["reason"]) == ("user", "it cost us a day")
    assert f"principle: {RULES[0]}" in store_terminal.run("crystals", "teachings").stdout
    ended = store_terminal.run("crystals", "teachings", "--withdraw", promoted[0]["id"], "--reason", "fixed upstream")
    assert "withdrawn: fixed upstream" in ended.stdout
    assert store_terminal.listed("crystals", "teachings") == []
    assert [each["id"] for each in store_terminal.listed("crystals", "teachings", "--all")] == [promoted[0]["id"]]
    assert "No teachings yet" in store_terminal.run("crystals", "teachings").stdout


def test_candidates_are_shown_and_promoted_on_request_only(store_terminal: StoreTerminal) -> None:
    """keeps: B-55, B-65, K-14"""
    store_terminal.crystal("s1")
    store_terminal.crystal("s2", confidence=0.8)

    assert [each["crystal"]["period"] for each in store_terminal.listed("crystals", "promote", "--candidates")] == [
        "session:s1"
    ]
    assert "1 candidate;" in store_terminal.run("crystals", "promote", "--candidates").stdout
    assert store_terminal.listed("crystals", "teachings") == []
    assert [each["period"] for each in store_terminal.listed("crystals", "promote", "--auto")] == ["session:s1"]
    assert "Nothing was promoted: a crystal needs 5 marks" in store_terminal.run("crystals", "promote", "--auto").stdout
    assert "No crystal would be promoted" in store_terminal.run("crystals", "promote", "--candidates").stdout


@pytest.mark.parametrize("arguments", [(), ("1", "--auto"), ("--auto", "--candidates")])
def test_promote_takes_an_id_or_one_of_two_options(store_terminal: StoreTerminal, arguments: tuple[str, ...]) -> None:
    result = store_terminal.run("crystals", "promote", *arguments)
    assert (result.exit_code, "give the ID of a crystal, --auto or --candidates" in result.stderr) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("crystals", "make", "--tree", "1", "--level", "day"), "leave out --level"),
        (("crystals", "make", "--tree", "1", "--session", "s1"), "leave out --session"),
        (("brief", "cookie", "--preset", "quick", "--budget", "100"), "give --preset or --budget, not both"),
    ],
)
def test_options_that_contradict_each_other_are_refused(
    store_terminal: StoreTerminal, arguments: tuple[str, ...], message: str
) -> None:
    """keeps: B-65. Wrong usage exits 2 and says what to leave out."""
    store_terminal.run("mark", "one thing")

    result = store_terminal.run(*arguments)

    assert result.exit_code == 2
    assert message in result.stderr


def test_expand_lists_what_was_left_out_at_every_level(store_terminal: StoreTerminal) -> None:
    """keeps: B-65. This includes whole crystals that were dropped."""

    async def made() -> Crystal:
        settings = mica.load_settings(store_terminal.variables)
        async with mica.open(store_terminal.store, settings=settings) as memory:
            sessions = []
            for name in ("s1", "s2"):
                with memory.context(session=name):
                    marks = [
                        memory.mark(f"The proxy dropped cookie {number} of the {name} page") for number in range(4)
                    ]
                one = await memory.crystals.commit(
                    [(f"The {name} proxy drops", [marks[0].id])],
                    sources=[mark.id for mark in marks],
                    period=f"session:{name}",
                )
                sessions.append(one)
            return await memory.crystals.commit(
                [("It drops", sessions[0].insight[0].sources)],
                level="day",
                period="day:2026-11-03",
                sources=[each.id for each in sessions],
                dropped={sessions[1].id: "the same again"},
            )

    day = asyncio.run(made())

    shown = store_terminal.run("crystals", "expand", day.id)
    document = store_terminal.document("crystals", "expand", day.id)

    assert "left out: the same again" in shown.stdout
    assert [each["left_out"] for each in document["sources"]] == [None, "the same again"]
