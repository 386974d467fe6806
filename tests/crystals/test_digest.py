"""The extractive digest: verbatim, cited, within its budget, with a list of what it dropped."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from types import FrameType

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.crystals.digest_sources import SESSION, source, sources_of

from mica import tokens
from mica.crystals.digest import Digest, DigestSource, count_mentions, extract, topics
from mica.crystals.salience import Sentence, Spelling
from mica.errors import InvalidInput
from mica.model.crystal import Statement
from mica.model.event import EventId

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)

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

budgets = st.integers(0, 120)


def session(marks: Sequence[tuple[str, str]] = SESSION) -> list[DigestSource]:
    return [
        source(f"m{number}", text, (tag,), NOON + timedelta(minutes=number))
        for number, (tag, text) in enumerate(marks, 1)
    ]


def test_generic_tool_output_is_not_a_statement() -> None:
    """Output that names a file or explains something is a statement; "Exit code 1" is not."""
    marks = [
        ("error", "Exit code 1"),
        ("command", "Run lint check"),
        ("edit", "Edited file"),
        ("edit", "Edited auth/session.py"),
        ("note", "Exit code 1 means that the proxy was away."),
    ]
    statements = [each.text for each in extract(session(marks), budget_tokens=40).statements]
    assert "Edited auth/session.py" in statements
    assert "Exit code 1 means that the proxy was away." in statements
    assert not {"Exit code 1", "Run lint check", "Edited file"}.intersection(statements)


@pytest.mark.parametrize(
    "printed",
    [
        "String to replace not found in file.",
        "File has been modified since read, either by the user or by a linter.",
        "The old string was not found; it must be unique in the file.",
        "Command timed out after two minutes",
        "Failed to find expected lines in the file to be changed.",
    ],
)
def test_an_error_of_common_words_only_is_not_a_statement(printed: str) -> None:
    """A sentence counts as a statement about this work if it names something or contains a rarer word."""
    rarer = "Certificate of the mirror expired on the first of May."
    naming = f"{printed.rstrip('.')} of `auth/session.py`"

    for informative in (rarer, naming):
        statements = extract(session([("error", printed), ("error", informative)]), budget_tokens=60).statements
        assert [statement.text for statement in statements] == [informative]


def test_a_sentence_is_never_reduced_to_what_follows_its_colon() -> None:
    label = "What we found out today when we finally looked at the logs of the proxy"
    fact = "The proxy strips every cookie of a 302 answer"
    sources = [source("m1", f"{label}: {fact}."), source("m3", "Tea. " * 40)]

    for budget in (14, 60):
        assert fact not in "".join(
            each.text for each in extract(sources, budget_tokens=budget, may_cut=False).statements[1:]
        )
    [statement] = extract(sources, budget_tokens=60).statements
    assert statement.text == f"{label}: {fact}."


def listed_ids(digest: Digest) -> list[str]:
    """Return the cited ids, once each, and the dropped ids."""
    cited = dict.fromkeys(name for statement in digest.statements for name in statement.sources)
    return [*cited, *(dropped.id for dropped in digest.dropped)]


# -- Laws -----------------------------------------------------------------------------------------------------


@given(sources=anything, budget=budgets)
def test_every_statement_is_verbatim_in_every_source_it_cites(sources: list[DigestSource], budget: int) -> None:
    """keeps: B-62, TB-13. This holds in any script."""
    texts: dict[str, list[str]] = {}
    for each in sources:
        texts.setdefault(each.id, []).append(each.text)

    for statement in extract(sources, budget_tokens=budget).statements:
        assert statement.sources
        assert statement.text.strip() == statement.text != ""
        assert all(any(statement.text in text for text in texts[name]) for name in statement.sources)


@given(sources=anything, budget=budgets)
def test_a_digest_fits_its_budget_and_is_smaller_than_its_sources(sources: list[DigestSource], budget: int) -> None:
    """keeps: B-16, TB-04. Compression is a law, even if the budget is larger than the sources."""
    digest = extract(sources, budget_tokens=budget)

    assert digest.tokens == tokens.estimate("\n".join(each.text for each in statements_in_order(digest, sources)))
    assert digest.tokens <= budget
    assert digest.source_tokens == sum(tokens.estimate(source.text) for source in sources)
    assert digest.tokens < digest.source_tokens or digest.tokens == 0


def statements_in_order(digest: Digest, sources: Sequence[DigestSource]) -> list[Statement]:
    """Return the statements of all sections in the order of their sources."""
    place = {source.id: number for number, source in reversed(list(enumerate(sources)))}
    return sorted(digest.statements, key=lambda each: place[each.sources[0]])


@given(sources=anything, budget=budgets)
def test_every_source_is_cited_or_dropped_once(sources: list[DigestSource], budget: int) -> None:
    """keeps: B-59, TB-10, B-61. Nothing is left out silently, and the reasons are facts about a source, not blame."""
    digest = extract(sources, budget_tokens=budget)

    assert Counter(listed_ids(digest)) == Counter({source.id for source in sources})
    assert {each.reason for each in digest.dropped} <= {"empty", "said by another", "no room", "only asked", "filler"}


@given(sources=anything, budget=budgets)
def test_no_sentence_appears_twice(sources: list[DigestSource], budget: int) -> None:
    texts = [statement.text for statement in extract(sources, budget_tokens=budget).statements]

    assert len(texts) == len(set(texts))


@given(sources=anything, budget=budgets)
def test_the_same_sources_give_the_same_bytes(sources: list[DigestSource], budget: int) -> None:
    """keeps: TB-15, B-22. The result depends neither on chance nor on the clock."""
    first = msgspec.json.encode(extract(sources, budget_tokens=budget))

    assert msgspec.json.encode(extract(list(sources), budget_tokens=budget)) == first


@given(sources=anything, budget=budgets)
def test_pausing_does_not_change_a_digest(sources: list[DigestSource], budget: int) -> None:
    """Background work pauses at every source and sentence; the digest is equal byte for byte."""
    pauses: list[None] = []

    made = extract(sources, budget_tokens=budget, pause=lambda: pauses.append(None))

    assert msgspec.json.encode(made) == msgspec.json.encode(extract(sources, budget_tokens=budget))
    assert len(pauses) >= 4 * len(sources)
    assert count_mentions(sources, pause=lambda: pauses.append(None)) == count_mentions(sources)


def test_another_process_makes_the_same_bytes() -> None:
    """keeps: TB-15. The order of sets differs between processes; the digest does not."""
    import subprocess

    code = (
        "import msgspec, sys; from mica.crystals.digest import DigestSource, extract; "
        "sources = msgspec.json.decode(sys.stdin.buffer.read(), type=list[DigestSource]); "
        "sys.stdout.buffer.write(msgspec.json.encode(extract(sources, budget_tokens=60)))"
    )
    encoded = msgspec.json.encode(session())
    digests = {
        subprocess.run(
            [sys.executable, "-c", code],
            input=encoded,
            capture_output=True,
            check=True,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(Path(tokens.__file__).parent.parent)},
        ).stdout
        for seed in ("1", "2", "3")
    }

    assert digests == {msgspec.json.encode(extract(session(), budget_tokens=60))}


# -- Chosen statements ----------------------------------------------------------------------------------------


def test_a_session_digest_states_the_outcome_and_its_reason() -> None:
    """keeps: B-03, B-17, B-35, K-18, B-62.

    It holds the decision and its reason, not the search for it, and never a template.
    """
    digest = extract(session(), budget_tokens=60)
    text = " ".join(statement.text for statement in digest.statements)

    assert "cookie after the redirect" in text
    assert "because the proxy strips headers" in text
    assert "Let me look" not in text
    assert "Now let me run" not in text
    assert {dropped.id: dropped.reason for dropped in digest.dropped}[EventId("m2")] == "filler"


def test_statements_are_in_time_order_for_any_order_of_sources() -> None:
    shuffled = [session()[number] for number in (5, 0, 8, 2, 9, 1, 10, 3, 7, 4, 6)]

    assert extract(shuffled, budget_tokens=60) == extract(session(), budget_tokens=60)


def test_requests_take_at_most_a_fifth_of_a_digest() -> None:
    """A crystal that repeats the request is no evidence of work."""
    requests = (
        "The proxy cache loses cookies.,Session headers expire early.,Redirects drop the query.,Login loses tokens."
    )
    words = "proxy cookies cache session headers redirects query login tokens early".split()
    prompts = [source(f"p{number}", text, ("prompt",)) for number, text in enumerate(requests.split(","))]
    done = [source(f"n{n}", f"Looked at {words[n % 10]} in file_{n}.py", ("command",)) for n in range(20)]

    digest = extract([*prompts, *done], budget_tokens=60)

    quoted = [each.text for each in digest.statements if all(name.startswith("p") for name in each.sources)]
    assert sum(map(tokens.estimate, quoted)) <= 60 / 5
    assert "only asked" in {dropped.reason for dropped in digest.dropped}


def test_a_statement_is_not_repeated_with_another_number() -> None:
    """keeps: B-60. The decision contains it, so the commit with the same words is left out."""
    digest = extract(session(), budget_tokens=200)

    assert {dropped.id: (dropped.reason, dropped.similar_to) for dropped in digest.dropped}[EventId("m10")] == (
        "said by another",
        "m6",
    )


def test_a_session_of_requests_only_still_gets_a_digest() -> None:
    digest = extract(
        [source("p1", "We moved to PostgreSQL. The old server is off. Tell the team.", ("prompt",))],
        budget_tokens=9,
    )

    assert digest.insight


def test_the_task_is_not_repeated_as_a_result() -> None:
    marks = session()

    digest = extract(marks, budget_tokens=24, task=SESSION[0][1])

    assert not any(statement.text in SESSION[0][1] for statement in digest.statements)


def test_a_report_is_preferred_to_the_narration_of_the_same_work() -> None:
    texts = [
        "Cookie handling moved behind the redirect in the session module.",
        "Cookie handling moved into session code.",
    ]

    digest = extract(
        [source("a", texts[1], ("narration",)), source("b", texts[0], ("report",))],
        budget_tokens=14,
    )

    assert [statement.sources for statement in digest.statements] == [("b",)]


def test_rules_become_principles_and_reasons_significance() -> None:
    """keeps: B-03, TB-13. Principles come only from sources; none is invented."""
    digest = extract(session(), budget_tokens=200)

    assert [each.text for each in digest.principles] == ["Never set a cookie on a redirect behind this proxy."]
    assert [each.sources for each in digest.significance] == [("m6",)]
    assert extract(session(SESSION[:4]), budget_tokens=200).principles == ()


def test_a_request_does_not_become_a_principle() -> None:
    """A request is not a result."""
    texts = (
        "The proxy must never see a cookie.",
        "Login keeps its token for a day.",
        "Ok, go on then, please do it now.",
    )

    digest = extract([source(text, text, ("prompt",)) for text in texts], budget_tokens=60)

    assert {texts[0], texts[1]} <= {each.text for each in digest.insight}
    assert digest.principles == ()


@pytest.mark.parametrize(
    "instruction",
    [
        "Do not change the session cookie yet.",
        "But please leave the database alone.",
        "Find out why the login forgets it.",
    ],
)
def test_an_instruction_does_not_become_the_significance(instruction: str) -> None:
    """An imperative in a prompt says nothing about the result, even if there is room for it."""
    found = source("m2", "The report is thrown away.", ("report",))
    looked = source("m3", "Let me look at all of it once more. " * 30, ("narration",))

    digest = extract([source("m1", instruction, ("prompt",)), found, looked], budget_tokens=90)

    assert [each.text for each in digest.statements] == [found.text]
    assert {each.id: each.reason for each in digest.dropped}[EventId("m1")] == "only asked"


def test_a_lone_instruction_still_gets_a_digest() -> None:
    digest = extract(
        [
            source("m1", "Do not change the cookie.", ("prompt",)),
            source("m2", "Ok.", ("prompt",)),
        ],
        budget_tokens=9,
    )

    assert [each.text for each in digest.insight] == ["Do not change the cookie."]


def test_a_lone_rule_becomes_the_insight() -> None:
    digest = extract(sources_of(["Never log a token. Ok, now we go on.", ""]), budget_tokens=6)

    assert [each.text for each in digest.insight] == ["Never log a token."]
    assert digest.principles == ()


def test_headings_code_and_hashes_are_not_statements() -> None:
    """Each statement can be read by itself."""
    marks = [
        "Changes",
        "String: {executeError && (",
        "Committed as 28c3bbd.",
        "The delete button stays enabled when a remediation fails.",
        "A failed remediation is found again when the page opens.",
    ]

    digest = extract(sources_of(marks), budget_tokens=26)

    assert [each.text for each in digest.statements] == marks[3:]


# -- Dropped sources ------------------------------------------------------------------------------------------


def test_a_repeated_sentence_cites_every_source_that_contains_it() -> None:
    digest = extract(session(), budget_tokens=200)

    assert ("m4", "m7") in [statement.sources for statement in digest.statements]


def test_a_paraphrase_is_dropped_in_favour_of_its_equivalent() -> None:
    """keeps: TB-12, B-59, B-60. Word order does not matter; unrelated marks are never dropped this way."""
    texts = [
        "Moved the session cookie after the proxy redirect.",
        "After the proxy redirect the session cookie moved.",
        "PostgreSQL partitions are closed every month by the ageing job.",
    ]

    digest = extract(sources_of(texts), budget_tokens=14)

    assert [(each.id, each.reason, each.similar_to) for each in digest.dropped] == [
        ("m0" if digest.insight[0].sources == ("m1",) else "m1", "said by another", digest.insight[0].sources[0]),
        ("m2", "no room", None),
    ] or {each.id: each.reason for each in digest.dropped} == {"m0": "no room", "m1": "no room"}
    roomy = {each.id: each for each in extract(sources_of(texts), budget_tokens=30).dropped}
    assert {each.reason for each in roomy.values()} == {"said by another"}
    assert "m2" not in roomy


@pytest.mark.parametrize(
    ("text", "budget", "reason"),
    [
        ("", 50, "empty"),
        (" \n\t\x00\x1f ", 50, "empty"),
        ("… !!! 🙂", 50, "empty"),
        ("word " * 200, 20, "no room"),
        ("The only sentence there is cannot be made smaller.", 50, "no room"),
        ("Both fit. Neither may.", 0, "no room"),
    ],
)
def test_sources_that_do_not_fit_are_dropped_with_a_reason(text: str, budget: int, reason: str) -> None:
    """keeps: B-59. No sentence is cut; the list of dropped sources gives the reason."""
    digest = extract([source("m1", text)], budget_tokens=budget)

    assert digest.statements == ()
    assert digest.tokens == 0
    assert [(each.id, each.reason) for each in digest.dropped] == [("m1", reason)]


def test_no_sources_make_an_empty_digest() -> None:
    assert extract([], budget_tokens=100) == Digest()


def test_a_time_without_a_zone_and_a_negative_budget_are_refused() -> None:
    """keeps: TB-16"""
    with pytest.raises(InvalidInput, match=r"'m1' is dated .* without a time zone"):
        extract([source("m1", "text", (), datetime(2026, 1, 1))], budget_tokens=10)  # noqa: DTZ001
    with pytest.raises(InvalidInput, match="-1 tokens"):
        extract([], budget_tokens=-1)


# -- Topics ---------------------------------------------------------------------------------------------------


def test_topics_are_spelled_by_the_given_function() -> None:
    """A digest passes its cache, so that no sentence is split twice."""
    texts: list[str] = []

    def spell(text: str) -> list[Spelling]:
        texts.append(text)
        return [("proxi", "proxy")]

    sentence = Sentence(text="Behind this proxy no cookie is kept.", units=("proxi",), place=0, is_head=True, kinds=())

    assert topics([[sentence]], {"proxi": 1.0}, spell=spell) == ("proxy",)
    assert texts == [sentence.text]


def test_topics_are_names_and_words_as_the_sources_write_them() -> None:
    """keeps: B-06. The most distinctive come first; numbers and leading verbs are left out."""
    found = extract(session(), budget_tokens=60).topics

    assert {"cookie", "redirect", "proxy"} <= set(found)
    assert len(found) <= 8
    assert not {"14", "12", "let", "now", "edited", "set"} & set(found)


# -- Levels ---------------------------------------------------------------------------------------------------


def test_counts_from_the_level_below_decide_what_a_higher_level_keeps() -> None:
    """keeps: B-18. A statement of many marks outweighs a statement of one, although each is now a single statement."""
    often = [f"The proxy strips cookies, case {number}." for number in range(12)]
    below = sources_of([*often, "The footer colour is grey now."])
    statements = [
        source("c1", "The proxy strips cookies, case 3."),
        source("c2", "The footer colour is grey now."),
    ]

    composed = extract(statements, budget_tokens=11, counted=count_mentions(below))
    alone = extract([statements[0], msgspec.structs.replace(statements[1], weight=40.0)], budget_tokens=11)

    assert [each.sources for each in composed.statements] == [("c1",)]
    assert [each.sources for each in alone.statements] == [("c2",)]


def test_several_statements_of_one_crystal_share_its_id() -> None:
    digest = extract(
        [
            source("c1", "The proxy strips cookies."),
            source("c1", "Login keeps the session."),
            source("c2", "Tests pass again."),
        ],
        budget_tokens=14,
    )

    assert Counter(listed_ids(digest)) == Counter(["c1", "c2"])


# -- Size -----------------------------------------------------------------------------------------------------


def many(count: int) -> list[DigestSource]:
    words = "cookie proxy header session redirect server cache worker queue table index".split()
    names = ["".join(chr(97 + (n * k) % 23) for k in (3, 5, 7, 11, 13)) for n in range(count)]
    return [
        source(
            f"m{n}",
            f"Fixed the {names[n]} {words[n % 11]} in module_{n % 97}.py. The {words[n % 7]} {n} is kept.",
            ("commit",),
        )
        for n in range(count)
    ]


def calls(work: Callable[[], object]) -> int:
    """Count the calls of Python and C functions."""
    made = 0

    def count_call(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal made
        made += event in {"call", "c_call"}

    sys.setprofile(count_call)
    try:
        work()
    finally:
        sys.setprofile(None)
    return made


def test_cost_grows_linearly_with_the_sources() -> None:
    """The test counts calls, not seconds."""
    extract(many(10), budget_tokens=50)
    small, large = (calls(partial(extract, many(count), budget_tokens=count)) for count in (500, 2_000))

    assert large < 6 * small


def test_ten_thousand_sources_are_digested() -> None:
    digest = extract(many(10_000), budget_tokens=2_000)

    assert digest.tokens <= 2_000
    assert len(digest.insight) > 20
    assert len(set(listed_ids(digest))) == 10_000


@pytest.mark.parametrize(
    "text", ["." * 200_000, "a: " * 60_000, "word\n" * 40_000, "(" * 200_000, "x" * 500_000, "é. A" * 50_000]
)
def test_hostile_texts_do_not_cost_quadratic_time(text: str) -> None:
    """A quadratic algorithm would run for hours here."""
    digest = extract(
        [source("m1", text), source("m2", "A short sentence about cookies.")],
        budget_tokens=40,
    )

    assert len(listed_ids(digest)) == 2


@pytest.mark.parametrize(
    "part",
    [
        "only the browser never hears of it, and the session cookie is lost",
        "and the session cookie is lost on every redirect.",
        "Which loses the session cookie on every redirect.",
        "The session cookie is lost in two places:",
        "The session cookie is lost on the way from",
    ],
)
def test_a_sentence_that_depends_on_the_one_before_is_not_a_statement(part: str) -> None:
    whole = "The cookie is set on a response that is thrown away."

    digest = extract([source("m1", part), source("m2", whole)], budget_tokens=60)

    assert [statement.text for statement in digest.statements] == [whole]


def test_a_sentence_is_not_cut_at_a_semicolon_or_before_a_capital() -> None:
    sentence = "Signing in works again: `login()` attaches the cookie to the redirect; Only tests had another response."

    digest = extract([source("m1", sentence), source("m2", "Let me look at that.")], budget_tokens=60)

    assert [statement.text for statement in digest.statements] == [sentence]


def test_questions_and_headings_of_a_prompt_are_not_statements() -> None:
    """A request is not a result."""
    prompt = (
        "Fix the session lifetime of the shop. Is the session lifetime wrong?\n\nFiles to change\n\nauth/session.py"
    )

    digest = extract(
        [
            source("m1", prompt, ("prompt",)),
            source("m2", "The lifetime is right, but nobody renews the session."),
        ],
        budget_tokens=60,
    )

    texts = [statement.text for statement in digest.statements]
    assert "Is the session lifetime wrong?" not in texts
    assert "Files to change" not in texts
    assert "The lifetime is right, but nobody renews the session." in texts


def test_a_clause_is_used_if_no_whole_sentence_fits() -> None:
    """A crystal of one long statement must be shorter than that statement."""
    sentence = "Carts are claimed before anything is charged; old databases need a migration that nobody has run yet"

    digest = extract([source("m1", sentence)], budget_tokens=60)

    assert [statement.text for statement in digest.statements] == [sentence.partition("; ")[0]]
