"""One brief of everything: crystals, marks, files, teachings and what other systems state, under one budget."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import datetime, timedelta
from itertools import compress
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as some

import mica
from mica import EventQuery, Memory
from mica.brief.budget import fit
from mica.brief.composition import Account, compose
from mica.brief.compression import compressed
from mica.brief.layout import at_most, for_agents, with_cost
from mica.errors import InvalidInput, SourceFailed
from mica.hook import BRIEFS, OFFERS, is_held_out
from mica.mcp.resources import RECEIPTS, read
from mica.mcp.tools import BY_NAME
from mica.model.event import Passage
from mica.settings import Settings
from mica.sources import registry
from mica.sources.cohere import cohere
from mica.sources.fan_out import Collected
from mica.sources.protocol import PHI_INV, Concept, Fragment
from mica.testing import HandClock
from mica.testing.builders import START_AT, build
from mica.testing.sources import State

CONCEPT = "service:api:login"


# -- One composer --------------------------------------------------------------------------------------------------


async def test_a_brief_tells_marks_and_what_other_systems_state_in_one_text(memory: Memory) -> None:
    """C-03, K-50: one allocator, one receipt; conflicts in one line, what is missing named."""
    memory.mark("The login cookie is set before the redirect")
    memory.sources.add(State("database", {"port": 8080, "owner": "ann"}, rank=10))
    memory.sources.add(State("file", {"port": 8081}))
    bad = State("bad", {})
    bad.error = RuntimeError("down")
    memory.sources.add(bad)

    brief = await memory.brief("login cookie", concept=CONCEPT)

    lines = brief.text.splitlines()
    assert any("The login cookie is set before the redirect (#1)" in line for line in lines)
    assert f"- {CONCEPT} [database]: port is 8080 (62%)" in lines
    assert f"- {CONCEPT} [database]: owner is ann (62%)" in lines
    assert (
        "- conflicts: port: [file] says port is 8081, loses to [database] (less trusted, rank 20 against 10)" in lines
    )
    assert "- missing: bad (RuntimeError: down)" in lines
    assert brief.concepts == (CONCEPT,)
    assert brief.coherence is not None
    assert brief.missing == {"bad": "RuntimeError: down"}


async def test_agents_are_told_what_is_missing_and_operators_also_where_and_what_to_do(memory: Memory) -> None:
    reason = "/srv/shop/state/gone.json does not exist; create it, or take out [sources.gone]"
    gone = State("gone", {})
    gone.error = SourceFailed("gone", reason)
    memory.sources.add(gone)

    gathered = await memory.defrag(CONCEPT)
    brief = await memory.brief("login", concept=CONCEPT)

    assert gathered.missing == brief.missing == {"gone": reason}
    for text in (gathered.injection, brief.text):
        assert "- missing: gone (gone.json does not exist)" in text.splitlines()


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        ("no answer within 80 ms", "no answer within 80 ms"),
        ("http://127.0.0.1:9/a/b answers 503; is it running?", "http://127.0.0.1:9/a/b answers 503"),
        ("OSError: [Errno 13] Permission denied: '/etc/shop/key'", "OSError: [Errno 13] Permission denied: 'key'"),
        (r"C:\shop\state.json cannot be read", "state.json cannot be read"),
        ("~/shop/state.json cannot be read", "state.json cannot be read"),
        ("3 of 4 rows and/or lines", "3 of 4 rows and/or lines"),
    ],
)
def test_no_folder_of_an_operator_is_told_to_an_agent(reason: str, told: str) -> None:
    assert for_agents(reason) == told


async def test_what_every_brief_speaks_of_is_set_once(home: Settings) -> None:
    """C-03: gathered before the model sees anything, without anybody asking."""
    home = msgspec.structs.replace(home, brief=msgspec.structs.replace(home.brief, concepts=(CONCEPT,)))
    async with mica.open(":memory:", settings=home) as memory:
        memory.sources.add(State("app", {"port": 8080}))

        assert "port is 8080" in (await memory.brief()).text


async def test_a_mark_that_a_source_quotes_is_told_once(memory: Memory) -> None:
    """TC-12: duplicates across sources once; what is counted as shown is shown."""
    memory.mark("login: the port is 8080 on every host")
    memory.sources.add(State("app", {"x": 1}))

    brief = await memory.brief("login port", concept="service:api:login")

    assert brief.text.count("the port is 8080 on every host") == 1
    assert len(brief.passages) == sum(line.startswith("- ") for line in brief.text.splitlines())


@given(some.lists(some.tuples(some.floats(0.3, 1), some.integers(1, 40)), max_size=12), some.integers(60, 400))
def test_fragments_take_at_most_their_share_of_a_brief(given: list[tuple[float, int]], budget: int) -> None:
    """C-09, K-28: at most 1/phi, however good they are; and the whole is never over the budget."""
    fragments = [
        Fragment(key=f"k{n}", text="word " * size, confidence=sure, at=START_AT, source=f"s{n}")
        for n, (sure, size) in enumerate(given)
    ]
    ranks = {each.source: 10 for each in fragments}
    account = Account(
        concept=Concept.parse(CONCEPT),
        collected=Collected(fragments=tuple(fragments), ranks=ranks),
        coherent=cohere(fragments, ranks=ranks, now=START_AT, limit=12),
    )
    marks = [
        Passage(text=f"mark {n}", sources=(build(n).id,), tokens=0, score=0.1, at=START_AT, source="marks")
        for n in (1, 2)
    ]

    brief = compose("", marks, [account], missing={}, budget_tokens=budget)

    assert at_most(brief.text) <= budget
    stated = [each for each in brief.passages if each.origins]
    assert sum(each.tokens for each in stated) <= budget * PHI_INV
    assert compose("", marks, [account], missing={}, budget_tokens=budget) == brief


def test_a_passage_that_is_too_long_is_passed_over_and_shorter_ones_still_fit() -> None:
    """TC-13"""
    passages = [
        with_cost(
            Passage(text=text, sources=(build(n).id,), tokens=0, score=1 / n, at=START_AT, source="marks"),
            budget_tokens=100,
        )
        for n, text in enumerate(["long " * 300, "short one", "short two"], start=1)
    ]

    chosen, left_out = fit(passages, budget_tokens=100)

    assert ([each.text for each in chosen], left_out) == (["short one", "short two"], 1)


# -- Receipts and why ----------------------------------------------------------------------------------------------


async def test_every_line_leads_to_its_marks_rows_or_files(memory: Memory) -> None:
    """C-54: from a brief, and from a line of it that names no event."""
    mark = memory.mark("The login cookie is set before the redirect")
    memory.sources.add(State("database", {"port": 8080}, rank=10))
    brief = await memory.brief("login cookie", concept=CONCEPT)
    assert brief.receipt is not None

    (whole,) = await memory.why(brief.receipt)
    (line,) = await memory.why(f"- {CONCEPT} [database]: port is 8080 (62%)")

    assert {(because.source, because.origins) for because in whole.because} == {
        ("marks", ()),
        ("database", (("database", "row port"),)),
    }
    assert [evidence.id for because in whole.because for evidence in because.evidence] == [mark.id]
    assert [(because.text, because.origins) for because in line.because] == [
        ("port is 8080 (62%)", (("database", "row port"),))
    ]
    gathered = await memory.defrag(CONCEPT)
    assert gathered.receipt is not None
    assert (("database", "row port"),) in [each.origins for each in (await memory.why(gathered.receipt))[0].because]
    with pytest.raises(InvalidInput):
        await memory.why("a line that nobody was shown")


async def test_what_was_retracted_since_says_so_wherever_it_is_named(memory: Memory) -> None:
    """From a line to its mark or judgment: on every surface whoever asks is told that it does not hold any more."""
    mark = memory.mark("The login cookie is set before the redirect")
    judged = memory.judge(CONCEPT, "GROWL", confidence=0.9)
    brief = await memory.brief("login cookie", concept=CONCEPT)
    assert brief.receipt is not None
    await memory.retract(mark.id, reason="it was the proxy")
    await memory.retract(judged.id, reason="judged too early")

    (whole,) = await memory.why(brief.receipt)
    (itself,) = await memory.why(mark.id)
    told = await BY_NAME["why"].call(memory, {"id": brief.receipt})

    wrong = {mark.id: "it was the proxy", judged.id: "judged too early"}
    evidence = {each.id: each.retracted for because in whole.because for each in because.evidence}
    assert evidence == wrong
    assert (whole.retracted, itself.retracted) == (None, "it was the proxy")
    for reason in wrong.values():
        assert f"'retracted': '{reason}'" in str(told["because"])
    assert "is retracted: it was the proxy" in await read(memory, f"{RECEIPTS}/{brief.receipt}")


async def test_a_line_of_a_gather_leads_to_its_own_source_and_concept_and_to_no_other(memory: Memory) -> None:
    """C-54: the same words of another source about another concept are another line."""
    memory.sources.add(State("verdicts", {"verdict": "HOWL"}, rank=10, concepts=("service:api:*",)))
    memory.sources.add(State("readback", {"verdict": "WAG"}, concepts=("service:api:*",)))
    memory.sources.add(State("other", {"verdict": "WAG"}, concepts=("shop:*",)))
    lost = next(line for line in (await memory.defrag(CONCEPT)).injection.splitlines() if "conflict on" in line)
    await memory.defrag("shop:review:1")

    (why,) = await memory.why(lost)

    assert (why.text, why.because[0].origins) == (CONCEPT, (("readback", "row verdict"),))
    with pytest.raises(InvalidInput, match="no line of the latest"):
        await memory.why(lost.replace("readback", "nobody"))
    (stated,) = await memory.why("[other] verdict is WAG")
    assert (stated.text, stated.because[0].origins) == ("shop:review:1", (("other", "row verdict"),))


async def test_a_purge_takes_receipts_that_quote_what_lost(memory: Memory) -> None:
    old = memory.judge(CONCEPT, "WAG", confidence=0.5, reasons=["the zebra said so"])
    memory.judge(CONCEPT, "GROWL", confidence=0.5)
    gathered = await memory.defrag(CONCEPT, deadline_s=5)
    assert "zebra" in gathered.injection

    await memory.purge(ids=[old.id])

    assert "zebra" not in str([event.data for event in await memory.events(EventQuery(limit=None))])


async def test_the_start_of_a_line_is_enough_and_every_concept_is_told_of_which_it_was_said(memory: Memory) -> None:
    memory.judge(CONCEPT, "GROWL", confidence=0.52, reasons=["tests passed"])
    memory.judge("shop:review:1", "GROWL", confidence=0.52, reasons=["no types"])
    await memory.defrag(CONCEPT)
    await memory.defrag("shop:review:1")

    both = await memory.why("[judgments] verdict: GROWL")
    (one,) = await memory.why("[judgments] verdict: GROWL: tests")

    assert [each.text for each in both] == ["shop:review:1", CONCEPT]
    assert one.text == CONCEPT
    with pytest.raises(InvalidInput, match="from its beginning"):
        await memory.why("GROWL: tests failed")


async def test_a_receipt_says_what_it_cost_and_what_it_was_about(memory: Memory) -> None:
    memory.sources.add(State("app", {"port": 8080}))

    brief = await memory.brief("port", concept=CONCEPT)

    (recorded,) = await memory.events(EventQuery(names=("brief",)))
    assert recorded.id == brief.receipt
    assert recorded.data["concepts"] == [CONCEPT]
    assert recorded.data["coherence"] == 0.75
    assert isinstance(recorded.data["latency_ms"], float)
    assert [event.data["concept"] for event in await memory.events(EventQuery(names=("defrag",)))] == [CONCEPT]


async def test_what_a_brief_asks_with_is_loaded_before_its_deadline_begins(
    home: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C-09: for the concepts of one brief, and for those of every brief."""
    loaded: list[str] = []
    monkeypatch.setattr(registry, "import_module", loaded.append)
    monkeypatch.delitem(sys.modules, "jsonpath", raising=False)
    tables: dict[str, dict[str, object]] = {
        "file": {"driver": "json", "path": "x.json", "select": "$.*", "concepts": ["service:*"]}
    }
    every = msgspec.structs.replace(home.brief, concepts=(CONCEPT,))

    for settings, asked in ((home, CONCEPT), (msgspec.structs.replace(home, brief=every), ())):
        async with mica.open(":memory:", settings=msgspec.structs.replace(settings, sources=tables)) as memory:
            await memory.prepare("other:thing:1")
            await memory.prepare(asked)

    assert "jsonpath" in loaded


# -- At another time -----------------------------------------------------------------------------------------------


async def test_a_brief_of_the_past_says_what_would_have_been_said_then(memory: Memory, clock: HandClock) -> None:
    """C-24, C-35: by what was recorded until then, and what sources had said when they were last asked."""
    memory.mark("The login cookie is set before the redirect", tags=("gotcha",))
    app = State("app", {"port": 8080}, ttl_s=1)
    memory.sources.add(app)
    then = await memory.brief("login cookie", concept=CONCEPT)
    clock.move(hours=1)
    moment = clock()
    clock.move(hours=1)
    memory.mark("The login cookie is gone since the login was rewritten")
    app.facts = {"port": 9090}
    after = await memory.brief("login cookie", concept=CONCEPT)

    back = await memory.brief("login cookie", concept=CONCEPT, at=moment)
    before = await memory.brief("login cookie", concept=CONCEPT, at=moment - timedelta(days=2))

    assert back.text == then.text
    assert ("9090" in after.text, "rewritten" in after.text) == (True, True)
    assert before.passages == ()
    assert before.missing == {
        CONCEPT: "nobody had gathered it by then, and other systems cannot be asked about the past"
    }


async def test_a_brief_of_the_past_tells_conflicts_and_gaps_too(memory: Memory, clock: HandClock) -> None:
    """C-35: as they were told then; what was not recorded of them is named."""

    async def down(concept: object) -> list[object]:
        raise RuntimeError("down")

    memory.sources.add(State("one", {"port": 8080}, rank=10))
    memory.sources.add(State("two", {"port": 9090}, rank=20))
    memory.register("three", down)
    then = await memory.brief(concept=CONCEPT)
    clock.move(minutes=1)
    back = await memory.brief(concept=CONCEPT, at=clock())

    assert len(then.conflicts) == 1
    assert "missing: three" in then.text
    assert (back.text, back.conflicts, back.missing, back.coherence) == (
        then.text,
        then.conflicts,
        then.missing,
        then.coherence,
    )

    for number in range(4):
        memory.sources.add(State(f"other{number}", {"port": number}, rank=30))
    await memory.brief(concept=CONCEPT)
    clock.move(minutes=1)
    more = await memory.brief(concept=CONCEPT, at=clock())

    assert len(more.conflicts) == 3
    assert more.missing[CONCEPT] == "2 more conflicts were found then and not recorded"


async def test_what_came_late_was_not_known_before_it_came(memory: Memory, clock: HandClock, tmp_path: Path) -> None:
    """C-35: neither a mark with an earlier time of its own nor an imported transcript, though both happened before."""
    memory.mark("The login cookie is set before the redirect", tags=("gotcha",))
    clock.move(hours=1)
    then, moment = await memory.brief("login cookie"), clock()
    clock.move(days=1)
    await memory.import_transcripts([_transcript(tmp_path, "The login cookie is lost in the proxy", at=START_AT)])
    memory.mark("The login cookie was always wrong", at=moment - timedelta(minutes=30))
    now = await memory.brief("login cookie")

    back = await memory.brief("login cookie", at=moment)
    soon_after = await memory.brief("login cookie", at=moment + timedelta(hours=2))

    assert ("proxy" in now.text, "always wrong" in now.text) == (True, True)
    assert back.text == soon_after.text == then.text


async def test_a_clock_that_went_wrong_once_hides_nothing(memory: Memory, clock: HandClock) -> None:
    clock.move(days=400)
    await memory.brief("login cookie")
    clock.move(days=-400)
    memory.mark("The login cookie is set before the redirect", tags=("gotcha",))
    then = await memory.brief("login cookie")

    assert (await memory.brief("login cookie", at=clock())).text == then.text


def _transcript(folder: Path, prompt: str, *, at: datetime) -> Path:
    """What Claude Code would have written of one prompt."""
    line = {
        "type": "user",
        "uuid": "u1",
        "sessionId": "late",
        "cwd": str(folder),
        "timestamp": at.isoformat().replace("+00:00", "Z"),
        "message": {"role": "user", "content": prompt},
    }
    (path := folder / "late.jsonl").write_text(f"{json.dumps(line)}\n", encoding="utf-8")
    return path


# -- On and off ----------------------------------------------------------------------------------------------------


async def test_briefs_can_be_switched_off_for_one_request_or_for_a_space(memory: Memory) -> None:
    """C-34: the receipt says so."""
    memory.mark("The login cookie is set before the redirect")

    off = await memory.brief("login", off=True)
    assert (off.text, off.passages, off.is_off) == ("", (), True)

    await memory.switch_briefs(on=False)
    assert not await memory.briefs_are_on()
    assert (await memory.brief("login")).is_off
    await memory.switch_briefs(on=True)
    assert "cookie" in (await memory.brief("login")).text

    told = [event.data.get("is_off", False) for event in await memory.events(EventQuery(names=("brief",)))]
    assert told == [True, True, False]


async def test_a_share_of_sessions_is_held_out_and_always_the_same(home: Settings) -> None:
    """C-54"""
    sessions = [f"s{number}" for number in range(1_000)]
    held = [is_held_out(each, 0.3, what=BRIEFS) for each in sessions]
    assert 250 < sum(held) < 350
    assert held == [is_held_out(each, 0.3, what=BRIEFS) for each in sessions]
    assert 60 < sum(is_held_out(each, 0.3, what=OFFERS) for each in compress(sessions, held)) < 120
    assert not is_held_out("", 1, what=BRIEFS)

    home = msgspec.structs.replace(home, brief=msgspec.structs.replace(home.brief, holdout=1.0))
    async with mica.open(":memory:", settings=home) as memory:
        memory.mark("The login cookie is set before the redirect")
        with memory.context(session="s1"):
            assert (await memory.brief("login")).is_off
        assert not (await memory.brief("login")).is_off


_LOADED = """
import asyncio, sys, mica

async def main():
    async with mica.open(sys.argv[1]) as memory:
        memory.emit("file.read", {"path": "auth/session.py"})
        memory.mark("The login cookie is set before the redirect in auth/session.py")
        await memory.prepare_brief()
        before = set(sys.modules)
        brief = await memory.brief("login cookie", deadline_s=60)
        assert "cookie" in brief.text and not brief.missing, brief
        print(sorted(name for name in set(sys.modules) - before if name.startswith("mica")))

asyncio.run(main())
"""


def test_a_brief_that_was_prepared_loads_nothing_within_its_deadline(tmp_path: Path) -> None:
    """U-05: a command that has just begun has its whole deadline for the answer."""
    variables = {"HOME": str(tmp_path), "MICA_SEMANTIC": "off"}
    command = [sys.executable, "-c", _LOADED, str(tmp_path / "space.db")]

    told = subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True, check=False)

    assert (told.returncode, told.stdout) == (0, "[]\n"), told.stderr


# -- Compression ---------------------------------------------------------------------------------------------------

_SENTENCES = some.sampled_from(
    [
        "The cookie is set before the redirect happens.",
        "Nothing else was changed in that week by anybody.",
        "Yes.",
        "The session store keeps tokens for thirty days.",
        "A proxy drops every header that it does not know.",
        "Deploys are frozen until the audit is over.",
    ]
)
_PASSAGES = some.lists(
    some.builds(
        lambda sentences, number, score: Passage(
            text=" ".join(sentences),
            sources=(build(number).id,),
            tokens=0,
            score=score,
            at=START_AT + timedelta(hours=number),
            source="marks",
        ),
        some.lists(_SENTENCES, min_size=1, max_size=5),
        some.integers(1, 9),
        some.floats(0, 1),
    ),
    max_size=6,
)


@given(_PASSAGES, some.integers(0, 200))
def test_compressed_text_is_a_part_of_the_whole_in_its_order_and_within_the_budget(
    passages: list[Passage], budget: int
) -> None:
    """C-36, TC-10: sentences as they stand, what is left out is marked, and what fits is unchanged."""
    found, coverage = compressed(
        passages, query="cookie redirect", budget_tokens=budget, cost=lambda each: with_cost(each, budget_tokens=500)
    )

    assert sum(each.tokens for each in found) <= budget
    wholes = {each.sources: each.text for each in passages}
    for each in found:
        pieces = [piece.strip() for piece in each.text.split("…") if piece.strip()]
        texts = [other.text for other in passages if other.sources == each.sources]
        assert any(_in_order(pieces, text) for text in texts), (pieces, wholes)
    if coverage is None:
        assert [each.text for each in found] == [each.text for each in passages]
    else:
        assert coverage.sentences <= coverage.of


def _in_order(pieces: list[str], text: str) -> bool:
    place = 0
    for piece in pieces:
        place = text.find(piece, place)
        if place < 0:
            return False
        place += len(piece)
    return True


@pytest.mark.parametrize("budget_tokens", range(1, 200, 20))
async def test_what_compression_leaves_no_sentence_of_is_counted(home: Settings, budget_tokens: int) -> None:
    """K-29: a brief of nothing says how much there is, compressed or not."""
    async with mica.open(":memory:", settings=home) as memory:
        for number in range(6):
            memory.mark(f"The login cookie number {number} is set before the redirect. It is lost in the proxy.")
        plain = await memory.brief("login cookie", budget_tokens=budget_tokens)
        short = await memory.brief("login cookie", budget_tokens=budget_tokens, compress=True)

    assert len(plain.passages) + plain.left_out == len(short.passages) + short.left_out == 6


async def test_compression_is_asked_for_comes_last_and_says_how_much_is_left(memory: Memory) -> None:
    """C-02, C-25, K-29: never without being asked; the sentence that answers stays."""
    filler = "Somebody wrote a long story about something that has nothing to do with it. " * 6
    memory.mark(f"{filler}The login cookie is set before the redirect. {filler}")

    plain = await memory.brief("login cookie redirect", budget_tokens=150)
    short = await memory.brief("login cookie redirect", budget_tokens=150, compress=True)

    assert "cookie" not in plain.text
    assert "The login cookie is set before the redirect." in short.text
    assert "- compressed: " in short.text
    assert " of 13 sentences are shown, in their own words" in short.text
    assert (plain.is_compressed, short.is_compressed) == (False, True)
    assert at_most(short.text) <= 150
