"""Explanations: every shown line leads back to its evidence."""

from __future__ import annotations

import re

import pytest
from tests.crystals.working_days import NOTES, OTHER
from tests.sources.scripted_sources import ScriptedSource

import mica
from mica import EventQuery, Memory
from mica.brief.layout import date_of
from mica.errors import InvalidInput
from mica.mcp.resources import RECEIPTS, read
from mica.mcp.tools import BY_NAME
from mica.model.event import EventId
from mica.testing import HandClock


async def test_every_passage_of_a_brief_names_its_sources(memory: mica.Memory) -> None:
    """A receipt is enough to look them up."""
    with memory.context(session="s1", agent="scout"):
        mark = memory.mark("The session cookie is set before the redirect", tags=("gotcha",))
        memory.emit("file.read", {"path": "auth/session.py", "start_line": 40, "end_line": 92})
    brief = await memory.brief("session cookie", budget_tokens=500)
    assert brief.receipt is not None

    [why] = await memory.why(brief.receipt)

    assert (why.name, why.text) == ("brief", "session cookie")
    assert len(why.because) == len(brief.passages)
    told = [line for line in why.because if line.source != "files"]
    assert {event.id for line in told for event in line.evidence} == {mark.id}
    assert (told[0].evidence[0].session, told[0].evidence[0].agent) == ("s1", "scout")
    assert [line.tokens for line in why.because] == [passage.tokens for passage in brief.passages]


async def test_a_line_of_a_brief_resolves_to_its_marks(memory: mica.Memory) -> None:
    with memory.context(session="s1"):
        cause = memory.mark("The cookie is set before the redirect")
        memory.mark("Moved the cookie after the redirect", parent=cause)
    brief = await memory.brief("moved the cookie", budget_tokens=500)
    line = next(line for line in brief.text.splitlines() if "Moved" in line)

    [why] = await memory.why(line)

    assert [each.text for each in why.because] == [
        "Moved the cookie after the redirect",
        "The cookie is set before the redirect",
    ]


async def test_statements_of_a_crystal_name_their_marks(memory: mica.Memory) -> None:
    with memory.context(session="s1"):
        ids = [memory.mark(f"Step {number} of the login sets the session cookie again").id for number in range(5)]
        crystal = await memory.crystals.commit([("The login sets its cookie five times", ids[1:3])])

    [why] = await memory.why(crystal.id)

    assert [(line.text, [event.id for event in line.evidence]) for line in why.because] == [
        ("The login sets its cookie five times", ids[1:3])
    ]


async def test_a_purged_source_is_named_and_not_shown(memory: mica.Memory) -> None:
    with memory.context(session="s1"):
        secret = memory.mark("The password of the shop is hunter2")
    brief = await memory.brief("password of the shop", budget_tokens=500)
    assert brief.receipt is not None
    await memory.purge(ids=[secret.id])

    [why] = await memory.why(brief.receipt)

    assert "purged" in [line.text for line in why.because]
    assert "hunter2" not in repr(why)


async def test_a_foreign_event_named_brief_is_explained_by_its_causes(memory: mica.Memory) -> None:
    cause = memory.emit("task.began", {"text": "why was this written"})
    memory.emit("brief", {"anything": [1]}, parent=cause)
    [event] = await memory.events.query(EventQuery(names=("brief",)))

    [why] = await memory.why(event)

    assert [line.text for line in why.because] == ["brief", "why was this written"]


async def test_a_missing_reference_is_an_error(memory: mica.Memory) -> None:
    with pytest.raises(mica.UnknownEvent, match="#999"):
        await memory.why("… and so on (#999)")


async def test_a_session_is_committed_without_naming_its_marks(memory: mica.Memory) -> None:
    """An agent's crystal of its own session covers all its marks; a second one supersedes the first."""
    with memory.context(session="s1", agent="scout"):
        ids = [memory.mark(f"Step {number} of the login sets the session cookie again").id for number in range(5)]
        first = await memory.crystals.commit([("The cookie is set five times", ids[:1])])
        ids.append(memory.mark("The last step of the login sets no cookie at all").id)
        second = await memory.crystals.commit([("The cookie is set five times, then no more", [ids[0], ids[5]])])

    assert (first.period, set(first.sources)) == ("session:s1", set(ids[:5]))
    assert (second.supersedes, set(second.sources)) == ((first.id,), set(ids))
    assert await memory.crystals.list() == [second]
    with pytest.raises(mica.InvalidInput, match="name the period"):
        await memory.crystals.commit([("Whose?", [EventId(ids[0])])])


async def test_every_line_of_a_brief_can_be_explained(memory: mica.Memory, clock: HandClock) -> None:
    """Lines are marks, statements, conflicts, gaps and the note on compression."""

    def away(concept: object) -> None:
        raise RuntimeError("the tracker is down")

    with memory.context(session="s1"):
        for note in (*NOTES, *OTHER):
            memory.mark(note)
    memory.sources.register(
        "readback", lambda concept: [{"key": "port", "value": 8081, "text": "the port is 8081"}], rank=20
    )
    memory.sources.register(
        "patterns", lambda concept: [{"key": "port", "value": 8080, "text": "the port is 8080"}], rank=10
    )
    memory.sources.register("older", lambda concept: [{"key": "port", "value": 80, "text": "the port is 80"}], rank=30)
    memory.sources.register("tracker", away)
    brief = await memory.brief("login cookie", concept="app:config:web", budget_tokens=300, compress=True)
    lines = [line for line in brief.text.splitlines() if line.startswith("- ")]

    explanations = {line.split(":")[0]: await memory.why(line) for line in lines}

    app = f"- {date_of(clock(), clock())} app"
    assert {"- conflicts", "- missing", "- compressed", app} <= explanations.keys()
    [conflicts] = explanations["- conflicts"]
    assert [each.origins[0][0] for each in conflicts.because] == ["readback", "older"]
    assert conflicts.id == brief.receipt
    [missing] = explanations["- missing"]
    assert "the tracker is down" in missing.missing["tracker"]
    assert [each.id for each in explanations["- compressed"]] == [brief.receipt]


CONCEPT = "service:api:login"


async def test_every_line_resolves_to_its_marks_rows_or_files(memory: Memory) -> None:
    """keeps: C-54. This works for a whole brief and for a line that names no event."""
    mark = memory.mark("The login cookie is set before the redirect")
    memory.sources.add(ScriptedSource("database", {"port": 8080}, rank=10))
    brief = await memory.brief("login cookie", concept=CONCEPT)
    assert brief.receipt is not None

    (whole,) = await memory.why(brief.receipt)
    (line,) = await memory.why(f"- {CONCEPT} [database]: port is 8080 (62%)")

    assert [each.origins for each in whole.because if each.source == "database"] == [(("database", "row port"),)]
    assert {evidence.id for because in whole.because for evidence in because.evidence} == {mark.id}
    assert [(because.text, because.origins) for because in line.because] == [
        ("port is 8080 (62%)", (("database", "row port"),))
    ]
    gathered = await memory.sources.gather(CONCEPT)
    assert gathered.receipt is not None
    assert (("database", "row port"),) in [each.origins for each in (await memory.why(gathered.receipt))[0].because]
    with pytest.raises(InvalidInput):
        await memory.why("a line that was never shown")


async def test_retracted_evidence_is_marked_on_every_surface(memory: Memory) -> None:
    """Every surface says that the mark or judgment behind a line no longer holds."""
    mark = memory.mark("The login cookie is set before the redirect")
    judged = memory.sources.judge(CONCEPT, "GROWL", confidence=0.9)
    brief = await memory.brief("login cookie", concept=CONCEPT)
    assert brief.receipt is not None
    await memory.retract(mark.id, reason="it was the proxy")
    await memory.retract(judged.id, reason="judged too early")

    (whole,) = await memory.why(brief.receipt)
    (itself,) = await memory.why(mark.id)
    answer = await BY_NAME["why"].call(memory, {"id": brief.receipt})

    wrong = {mark.id: "it was the proxy", judged.id: "judged too early"}
    evidence = {each.id: each.retracted for because in whole.because for each in because.evidence}
    assert evidence == wrong
    assert (whole.retracted, itself.retracted) == (None, "it was the proxy")
    for reason in wrong.values():
        assert f"'retracted': '{reason}'" in str(answer.content["because"])
    assert "is retracted: it was the proxy" in await read(memory, f"{RECEIPTS}/{brief.receipt}")


async def test_a_line_of_a_gather_resolves_to_its_own_source_and_concept_only(memory: Memory) -> None:
    """keeps: C-54. The same words from another source about another concept are another line."""
    memory.sources.add(ScriptedSource("verdicts", {"verdict": "HOWL"}, rank=10, concepts=("service:api:*",)))
    memory.sources.add(ScriptedSource("readback", {"verdict": "WAG"}, concepts=("service:api:*",)))
    memory.sources.add(ScriptedSource("other", {"verdict": "WAG"}, concepts=("shop:*",)))
    lost = next(line for line in (await memory.sources.gather(CONCEPT)).injection.splitlines() if "conflict on" in line)
    await memory.sources.gather("shop:review:1")

    (why,) = await memory.why(lost)

    assert (why.text, why.because[0].origins) == (CONCEPT, (("readback", "row verdict"),))
    with pytest.raises(InvalidInput, match="none of the latest"):
        await memory.why(lost.replace("readback", "nobody"))
    (stated,) = await memory.why("[other] verdict is WAG")
    assert (stated.text, stated.because[0].origins) == ("shop:review:1", (("other", "row verdict"),))


async def test_the_start_of_a_line_is_enough_and_finds_every_concept(memory: Memory) -> None:
    memory.sources.judge(CONCEPT, "GROWL", confidence=0.52, reasons=["tests passed"])
    memory.sources.judge("shop:review:1", "GROWL", confidence=0.52, reasons=["no types"])
    await memory.sources.gather(CONCEPT)
    await memory.sources.gather("shop:review:1")

    both = await memory.why("[judgments] verdict: GROWL")
    (one,) = await memory.why("[judgments] verdict: GROWL: tests")

    # A judgment is also gathered in the background, so either concept may have the latest record.
    assert sorted(each.text for each in both) == [CONCEPT, "shop:review:1"]
    assert one.text == CONCEPT
    with pytest.raises(InvalidInput, match="begins with it"):
        await memory.why("GROWL: tests failed")


@pytest.mark.parametrize(
    "line",
    [
        "- gotcha: The retry hides the real error (#2)",
        "gotcha: The retry hides the real error (#2)",
        "The retry hides the real error (#2)",
        "- gotcha: The retry hides the real error",
        "gotcha: The retry hides",
        "The retry hides",
        "gotcha: The",
        "The retry",
        "the RETRY, hides",
        "2026-11-03 gotcha: The retry hides",
        "2026-11-03\n- gotcha: The retry hides the real error (#2)",
        "- gotcha, corrected by #7: The retry hides",
        "The retry hides the real error (#1)",  # the number of another event, as in another space
        "The retry hides the real error (#999)",
    ],
)
async def test_a_mark_is_found_by_its_line_in_any_form(memory: Memory, line: str) -> None:
    memory.mark("The login cookie is set before the redirect")
    mark = memory.mark("The retry hides the real error", tags=("gotcha",))
    await memory.brief("retry", budget_tokens=500)
    await memory.brief("error", budget_tokens=500)

    [why] = await memory.why(line)

    assert [event.id for because in why.because for event in because.evidence] == [mark.id]
    assert [because.text for because in why.because] == ["The retry hides the real error"]


@pytest.mark.parametrize("line", ["decision: The retry hides", "retry hides the", "The", "gotcha", "The login cookie"])
async def test_other_words_and_lines_that_were_not_shown_are_no_line(memory: Memory, line: str) -> None:
    memory.mark("The retry hides the real error", tags=("gotcha",))
    memory.mark("The login cookie is set before the redirect")
    await memory.brief("retry error", budget_tokens=50)

    with pytest.raises(InvalidInput, match="none of the latest"):
        await memory.why(line)


async def test_a_list_of_files_names_the_last_step_at_each_file(memory: Memory) -> None:
    with memory.context(session="s1"):
        prompt = memory.mark("Why does the login lose its cookie", tags=("prompt",))
        memory.emit("file.read", {"path": "auth/session.py", "start_line": 4, "end_line": 9}, parent=prompt)
        last = memory.emit("file.edit", {"path": "auth/session.py", "start_line": 40, "end_line": 92}, parent=prompt)
        other = memory.emit("file.read", {"path": "auth/proxy.py"}, parent=prompt)
    texts = [(await memory.brief(query, budget_tokens=500)).text for query in ("login cookie", "")]
    for text in texts:
        full = next(line for line in text.splitlines() if "auth/session.py" in line)
        label, _, files = full.removeprefix("- ").partition(": ")
        for line in (
            full,
            files,
            f"{label}: {files.split(', ')[0]}",
            " ".join(label.split()[:2]),
            label,
            f"{label}: auth",
        ):
            [why] = await memory.why(line)

            [because] = why.because
            assert because.source == "files"
            assert {event.id for event in because.evidence} == {last.id, other.id}, line
            assert set(because.text.split(", ")) == {"auth/session.py:40-92", "auth/proxy.py"}
        for line in (
            full.replace("proxy", "nothing"),
            f"{label}: lib/other.py (1 turn)",
            "auth files",
            f"{full}, lib/x.py",
        ):
            with pytest.raises(InvalidInput, match="none of the latest"):
                await memory.why(line)


async def test_a_statement_of_a_crystal_is_found_by_its_line(memory: Memory) -> None:
    with memory.context(session="s1"):
        ids = [memory.mark(note).id for note in (*NOTES, *OTHER)]
        crystal = await memory.crystals.commit(
            [("An audit found nine problems in the invoices", ids[1:3]), ("The vault had no key for Ann", ids[3:5])]
        )
    shown = await memory.brief(budget_tokens=2_000)
    line = next(each for each in shown.text.splitlines() if "The vault had no key" in each)
    assert re.match(r"- \d+ \w+ session \(The cookie is set before the redirect\): ", line)

    for pasted in (
        line,
        line.rpartition(" (#")[0],
        "session (The cookie is set before the redirect): The vault had",
        "The vault had no key",
    ):
        [why] = await memory.why(pasted)

        evidence = {event.id for because in why.because for event in because.evidence}
        assert set(ids[3:5]) <= evidence <= {crystal.id, *ids[1:5]}, pasted


async def test_a_teaching_is_found_by_its_line(memory: Memory) -> None:
    with memory.context(session="s1"):
        ids = [memory.mark(note).id for note in (*NOTES, *OTHER)]
        crystal = await memory.crystals.commit(
            [("Audits happen on Mondays only", ids[1:3])], principles=[("Never deploy on a Friday", ids[3:5])]
        )
    teaching = await memory.crystals.promote(crystal.id, by="ann")
    shown = await memory.brief(budget_tokens=2_000)
    lines = [each for each in shown.text.splitlines() if f"(#{teaching.position})" in each]
    assert len(lines) == 2

    for line in lines:
        for pasted in (line, line.rpartition(" (#")[0], line.rpartition(" (#")[0].split(": ")[1]):
            [why] = await memory.why(pasted)
            assert teaching.id in {event.id for because in why.because for event in because.evidence}, pasted


LABELS = [("- ", True), ("", True), ("9 Nov user: ", True), ("* 9 Nov 2025 user: ", True), ("9 Nov agent: ", False)]


@pytest.mark.parametrize(("dressed", "is_found"), LABELS)
async def test_joined_sentences_are_found_with_and_without_what_is_left_out(
    memory: Memory, dressed: str, is_found: bool
) -> None:
    """Between two sentences of one line, others may be missing, and neither a header nor a date hides them."""
    with memory.context(session="s1"):
        prompt = memory.mark(
            "The invoices are wrong since Monday. Look at the rounding in billing/money.py first! "
            "The mailer prints whatever it is given. Ann wants a fix before the audit starts.",
            tags=("prompt",),
            origin="user",
        )
    brief = await memory.brief(budget_tokens=2_000)
    assert prompt.id in {source for each in brief.passages for source in each.sources}

    for text in (
        "The invoices are wrong since Monday. … The mailer prints",
        "The invoices are wrong since Monday. … Ann wants a fix before the audit starts.",
        "Ann wants a fix",
    ):
        if is_found:
            [why] = await memory.why(dressed + text)
            assert [event.id for because in why.because for event in because.evidence] == [prompt.id]
        else:
            with pytest.raises(InvalidInput, match="none of the latest"):
                await memory.why(dressed + text)
    with pytest.raises(InvalidInput, match="none of the latest"):
        await memory.why("The invoices are wrong since Monday. … the mailer prints nothing")


async def test_a_completed_answer_is_explained_by_itself_and_what_it_answers(memory: Memory, clock: HandClock) -> None:
    """A brief shows "yes" together with the proposal, although no event has this text."""
    with memory.context(session="s1"):
        proposal = memory.mark(
            "The import is slow. Should I add a unique index on the invoice number?", tags=("closing",)
        )
        clock.move(minutes=1)
        answer = memory.mark("Yes, do it", tags=("prompt",), origin="user")
    for number, note in enumerate((*NOTES, *OTHER)):
        clock.move(hours=1)
        with memory.context(session=f"later{number}"):
            memory.mark(note)
    brief = await memory.brief(budget_tokens=2_000)
    line = next(each for each in brief.text.splitlines() if "Yes, do it" in each)
    assert "unique index" in line

    [numbered] = await memory.why(line)
    assert answer.id in {event.id for each in numbered.because for event in each.evidence}
    for pasted in (line.rpartition(" (#")[0], "user: Yes, do it: Should I", "Yes, do it: Should I add"):
        [why] = await memory.why(pasted)

        assert {event.id for each in why.because for event in each.evidence} == {answer.id, proposal.id}, pasted
        assert "unique index" in why.because[0].text


async def test_a_short_answer_is_explained_with_its_question(memory: Memory, clock: HandClock) -> None:
    """The belief has the words of both, and only the answer is its evidence."""
    with memory.context(session="s1"):
        question = memory.mark("Who may delete club members?", tags=("closing",))
        clock.move(minutes=1)
        answer = memory.mark("Club members: only the board", tags=("prompt",), origin="user")
    brief = await memory.brief(budget_tokens=1_000)
    line = next(each for each in brief.text.splitlines() if "only the board" in each).rpartition(" (#")[0]

    [why] = await memory.why(line)

    shown = {event.id for each in why.because for event in each.evidence}
    assert shown == ({question.id, answer.id} if "Who may" in line else {answer.id})


async def test_a_conflict_is_found_with_and_without_its_note(memory: Memory, clock: HandClock) -> None:
    for session, text in (
        ("s1", "The upload times out after 30 seconds"),
        ("s2", "The upload times out after 90 seconds"),
    ):
        clock.move(hours=1)
        with memory.context(session=session, user=session):
            memory.mark(text, tags=("fact",), origin="user")
    brief = await memory.brief(budget_tokens=1_000)

    for line in (each for each in brief.text.splitlines() if each.startswith("- ")):
        for pasted in (line, line.rpartition(" (#")[0]):
            [why] = await memory.why(pasted)
            assert why.because[0].evidence


async def test_the_number_of_rules_without_room_is_explained_by_its_brief(memory: Memory) -> None:
    with memory.context(session="s1"):
        for thing in (
            "floats for money",
            "plain python",
            "global state",
            "print in a library",
            "force pushes",
            "sleeps",
        ):
            memory.mark(f"Never use {thing} in this project", tags=("prompt",), origin="user")
    brief = await memory.brief(budget_tokens=120)
    line = next(each for each in brief.text.splitlines() if each.startswith("- missing: rules"))

    [why] = await memory.why(line)

    assert why.id == brief.receipt
    assert "without room" in why.missing["rules"]


async def test_a_compressed_line_is_found_with_its_gaps(memory: Memory) -> None:
    """Sentences of one event, each of them shortened, share a line."""
    with memory.context(session="s1"):
        for note in (*NOTES, *OTHER):
            memory.mark(note)
        cookie = memory.mark(
            "A proxy stands before the shop. It drops each header that it does not know. "
            "The login cookie is set before the redirect. It is lost there."
        )
    short = await memory.brief("login cookie redirect", budget_tokens=150, compress=True)
    line = next(each for each in short.text.splitlines() if "login cookie is set before the redirect" in each)
    unnumbered = line.rpartition(" (#")[0]

    for pasted in (line, unnumbered, unnumbered.partition("mark: ")[2], "mark: … The login cookie is set"):
        [why] = await memory.why(pasted)
        assert [event.id for because in why.because for event in because.evidence] == [cookie.id], pasted
    with pytest.raises(InvalidInput, match="none of the latest"):
        await memory.why("mark: login cookie is set")


async def test_a_further_line_of_a_long_mark_is_found_unless_another_begins_with_it(memory: Memory) -> None:
    long = memory.mark("Two findings:\n- the proxy drops headers\n- the retry hides the error")
    await memory.brief("proxy", budget_tokens=500)

    [further] = await memory.why("  - the retry hides")
    mark = memory.mark("The retry hides what failed")
    await memory.brief("retry", budget_tokens=500)
    [beginning] = await memory.why("the retry hides")

    assert [event.id for event in further.because[0].evidence] == [long.id]
    assert [event.id for event in beginning.because[0].evidence] == [mark.id]


async def test_a_number_within_the_text_of_a_line_is_not_its_source(memory: Memory) -> None:
    """The subjects of commits end in the number of a pull request."""
    memory.mark("The login cookie is set before the redirect")
    commit = memory.mark("Fix the retry (#1)", tags=("commit",))
    await memory.brief("retry", budget_tokens=500)

    for line in ("- commit: Fix the retry (#1)", "- commit: Fix the retry (#1) (#2)"):
        [why] = await memory.why(line)

        assert [event.id for because in why.because for event in because.evidence] == [commit.id]


async def test_the_line_of_a_purged_mark_is_unknown_and_that_of_a_retracted_one_says_so(memory: Memory) -> None:
    secret = memory.mark("The password of the shop is hunter2")
    wrong = memory.mark("The password expires after a day")
    await memory.brief("password", budget_tokens=500)
    await memory.purge(ids=[secret.id])
    await memory.retract(wrong.id, reason="it was the proxy")

    [why] = await memory.why("mark: The password expires")

    assert [event.retracted for event in why.because[0].evidence] == ["it was the proxy"]
    with pytest.raises(InvalidInput, match="none of the latest"):
        await memory.why("mark: The password of the shop")


async def test_an_event_named_brief_that_mica_did_not_write_explains_no_line(memory: Memory) -> None:
    memory.emit("brief", {"query": "", "passages": [{"source": "marks", "sources": ["no id"]}, {"source": "files"}]})
    memory.emit("brief", {"query": "", "passages": [{"source": "marks"}]})

    with pytest.raises(InvalidInput, match="none of the latest"):
        await memory.why("the retry hides")
