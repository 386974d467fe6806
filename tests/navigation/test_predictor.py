"""Laws of navigation: the same answer each time, from the tree alone, by the past alone."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from mica.model.event import Context, Event
from mica.navigation.engine.calibration import CAP, Weights, falling
from mica.navigation.engine.fields import Field
from mica.navigation.engine.file_blocks import lines_for
from mica.navigation.engine.gate import listed, worth_saying
from mica.navigation.engine.lookup_file import Kept, file_of
from mica.navigation.engine.mentions import Names, mentions
from mica.navigation.engine.signals import Question
from mica.navigation.engine.task_history import Commit, Past, Task
from mica.navigation.engine.tree import Document, Tree
from mica.navigation.learned import Tenths, Worth
from mica.navigation.navigator import known
from mica.navigation.places import Place
from mica.navigation.predictor import Navigator
from mica.navigation.regression import lesson, prior, solved
from mica.testing.builders import START_AT, build

PATHS = ("auth/session.py", "auth/redirect.py", "billing/invoice.py", "docs/login.md", "tests/test_session.py")
WORDS = "cookie session redirect login invoice charge customer total renew".split()

some_words = st.lists(st.sampled_from([*WORDS, *PATHS]), max_size=8).map(" ".join)
some_paths = st.lists(st.sampled_from([*PATHS, "gone/old.py"]), max_size=4, unique=True).map(tuple)
tasks = st.lists(st.builds(Task, text=some_words, files=some_paths), max_size=8)
counts = st.dictionaries(st.sampled_from(WORDS), st.integers(1, 5), max_size=6)


def tree_of(contents: Sequence[dict[str, int]]) -> Tree:
    tree = Tree()
    for path, terms in zip(PATHS, contents, strict=False):
        tree.put(path, Document(terms=terms, size_bytes=100))
    return tree


def navigator_of(contents: Sequence[dict[str, int]], past: Sequence[Task]) -> Navigator:
    navigator = Navigator(tree_of(contents))
    for task in past:
        navigator.learn(task, navigator.ask(Question(text=task.text)))
    return navigator


@given(st.lists(counts, max_size=5), tasks, some_words, st.lists(some_paths, max_size=3).map(tuple))
def test_an_answer_is_the_same_twice_and_from_the_tree(
    contents: list[dict[str, int]], past: list[Task], text: str, session: tuple[tuple[str, ...], ...]
) -> None:
    """A-42: no file that is not there is offered, and no probability is beyond 0.9."""
    question = Question(text=text, session=session)
    one = navigator_of(contents, past)
    places = one.rank(question, limit=50)

    assert places == navigator_of(contents, past).rank(question, limit=50)
    assert {place.path for place in places} <= set(one.tree)
    assert all(0 <= place.probability <= CAP and place.reasons for place in places)
    assert [place.probability for place in places] == sorted((place.probability for place in places), reverse=True)


@given(st.lists(counts, min_size=5, max_size=5), st.lists(counts, max_size=5), st.data())
def test_an_index_that_was_changed_answers_as_one_made_anew(
    before: list[dict[str, int]], after: list[dict[str, int]], data: st.DataObject
) -> None:
    tree = tree_of(before)
    for path in PATHS[len(after) :]:
        tree.remove(path)
    for path, terms in data.draw(st.permutations(list(zip(PATHS, after, strict=False)))):
        tree.put(path, Document(terms=terms, size_bytes=100))
    question = Question(text=" ".join(WORDS))

    expected = [(place.path, place.probability) for place in Navigator(tree_of(after)).rank(question)]
    assert [(place.path, place.probability) for place in Navigator(tree).rank(question)] == expected
    for read_only in (True, False):
        kept = Navigator(Tree(kept_in(tree.entries()), read_only=read_only)).rank(question)
        assert [(place.path, place.probability) for place in kept] == expected


@given(st.lists(counts, max_size=6), st.lists(st.tuples(st.integers(0, 7), counts), max_size=4), counts)
def test_a_field_that_was_kept_goes_on_as_it_was(
    documents: list[dict[str, int]], later: list[tuple[int, dict[str, int]]], asked: dict[str, int]
) -> None:
    """Written, read back, changed and written again: it scores as one that never was in a file."""
    field = Field()
    for number, terms in enumerate(documents):
        field.put(number, terms)
    kept = Field(kept_in(field.entries("a")), "a")
    for number, terms in later:
        for each in (field, kept):
            each.drop(number) if not terms else each.put(number, terms)

    assert kept.scores(asked) == field.scores(asked)
    assert Field(kept_in(kept.entries("b")), "b").scores(asked) == field.scores(asked)


def kept_in(entries: Iterable[tuple[str, str, bytes]]) -> Kept:
    with tempfile.TemporaryFile() as file:
        file.write(file_of(entries))
        file.flush()
        return Kept(file.fileno())


def prompt(sequence: int, text: str, paths: Sequence[str], *, after_s: float, session: str) -> list[Event]:
    context = Context(session=session)
    asked = build(sequence, "mark", {"text": text, "tags": ["prompt"]}, after_s=after_s, context=context, origin="user")
    read = [
        build(sequence + place, "file.read", {"path": path}, parent=asked, after_s=after_s + place, context=context)
        for place, path in enumerate(paths, 1)
    ]
    return [asked, *read]


@given(st.lists(st.tuples(some_words, some_paths, st.sampled_from(["s1", "s2"])), max_size=8), st.integers(0, 8))
def test_what_comes_later_does_not_change_an_earlier_answer(
    turns: list[tuple[str, tuple[str, ...], str]], count: int
) -> None:
    """Learned by event time: a question of the past knows nothing of its future."""
    events = [
        event
        for place, (text, paths, session) in enumerate(turns)
        for event in prompt(100 * place + 1, text or "go on", paths, after_s=60 * place, session=session)
    ]
    now = START_AT + timedelta(seconds=60 * count)
    question = Question(text="login cookie")

    def answer(seen: list[Event]) -> list[Place]:
        past, _ = known(seen, now)
        return Navigator(tree_of([{}] * 5), past).rank(question)

    assert answer(events) == answer([event for event in events if event.at <= now])


def test_a_renamed_file_keeps_its_past() -> None:
    """Renames follow git: what was read by the old name is offered by the new one, and the old one never."""
    past = Past()
    past.learn(Task(text="login cookie lost", files=("auth/cookies.py", "auth/redirect.py")))
    past.learn_commit(Commit(subject="Move", files=(PATHS[0],), renamed=(("auth/cookies.py", PATHS[0]),)))

    places = Navigator(tree_of([{}] * 5), past).rank(Question(text="login cookie lost"))

    found = {place.path: place for place in places}
    assert "auth/cookies.py" not in found
    assert any(reason.startswith("similar task") for reason in found[PATHS[0]].reasons)


def test_learning_moves_what_was_wrong_and_little_else() -> None:
    """Tasks of one space teach which signals are right there; the prior is where it begins."""
    navigator = Navigator(tree_of([{"login": 3}, {"redirect": 3}, {"total": 3}, {}, {}]))
    before = dict(navigator.ask(Question(text="login redirect")).ranked)["auth/redirect.py"]
    for _ in range(12):
        asked = navigator.ask(Question(text="login redirect"))
        navigator.learned = navigator.taught(asked, ("auth/redirect.py",))
    after = dict(navigator.ask(Question(text="login redirect")).ranked)

    assert after["auth/redirect.py"] > max(0.5, before)
    assert after["auth/session.py"] < 0.5
    assert navigator.learned.model.tasks == 12
    assert sum(navigator.learned.tenths.counts) > 0


@given(st.lists(st.floats(-3, 3), min_size=4, max_size=4), st.lists(st.floats(-2, 2), min_size=16, max_size=16))
def test_what_is_solved_is_a_solution(right: list[float], numbers: list[float]) -> None:
    rows = [numbers[4 * index : 4 * index + 4] for index in range(4)]
    matrix = [
        [sum(one[k] * other[k] for k in range(4)) + (i == j) for j, other in enumerate(rows)]
        for i, one in enumerate(rows)
    ]
    found = solved([row[: index + 1] for index, row in enumerate(matrix)], right)

    back = [sum(value * x for value, x in zip(row, found, strict=True)) for row in matrix]
    assert all(abs(one - other) < 1e-6 for one, other in zip(back, right, strict=True))


def test_the_prior_is_about_the_features_that_there_are() -> None:
    model = prior()

    assert model.fits()
    assert "BSD" in model.source
    assert lesson(Navigator().ask(Question(text="x")).candidates, {}, (), scales=model.scales).rows == []


@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), max_size=60), st.floats(0, 1))
def test_a_corrected_probability_stays_one(outcomes: list[tuple[float, bool]], predicted: float) -> None:
    assert 0 <= corrected(Tenths().with_outcomes(outcomes), predicted) <= CAP
    assert falling([0.5, 0.6, 0.2]) == [0.5, 0.5, 0.2]


def test_predictions_that_never_come_true_are_lowered() -> None:
    assert corrected(Tenths().with_outcomes([(0.75, False)] * 30), 0.75) < 0.2
    assert corrected(Tenths().with_outcomes([(0.25, True)] * 30), 0.25) > 0.8


def corrected(tenths: Tenths, predicted: float) -> float:
    return Weights(start=0.0, slopes=(), off=tenths.off).corrected(predicted)


# -- Mentions ---------------------------------------------------------------------------------------------


def test_paths_are_found_however_they_are_written() -> None:
    """A path with or without what leads to it, behind an @, in backticks, from another machine, or for Windows."""
    names = Names([*PATHS, "src/billing/invoice.py"])
    for written in (
        "see auth/session.py now",
        "@auth/session.py",
        "`./auth/session.py`",
        "/home/someone/shop/auth/session.py:12",
        r"C:\shop\auth\session.py",
        "a/auth/session.py",
        "(auth/session.py)",
    ):
        assert mentions(written, names).paths == {"auth/session.py": 1.0}, written
    assert mentions("in billing/invoice.py", names).paths == dict.fromkeys(
        ("billing/invoice.py", "src/billing/invoice.py"), 0.5
    )
    assert mentions("nothing.like this/at.all", names).paths == {}
    assert set(mentions("all of auth/ please", names).folders) == {"auth/session.py", "auth/redirect.py"}


def test_lines_beside_a_path_are_its_lines() -> None:
    names = Names(PATHS)

    assert mentions("auth/session.py:40-92 loses it", names).lines == {"auth/session.py": ((40, 92),)}
    assert mentions("auth/session.py (lines 189-207)", names).lines == {"auth/session.py": ((189, 207),)}
    assert mentions("auth/session.py, 3 times", names).lines == {}


def test_symbols_name_the_files_that_define_them() -> None:
    named = mentions(
        "SessionCookie is lost", Names(PATHS), lambda name: ["auth/session.py"] if name == "SessionCookie" else []
    )

    assert named.symbols == {"auth/session.py": 1.0}


# -- Lines ------------------------------------------------------------------------------------------------

SOURCE = "\n".join(
    f"def part{number}(value):\n" + "\n".join(f"    step_{number}_{line} = value + {line}" for line in range(12))
    for number in range(20)
)


def test_lines_begin_where_the_prompt_points() -> None:
    """A-42: current lines, by symbol, by words, and by the lines that the prompt names."""
    total = SOURCE.count("\n") + 1
    lines, counted = lines_for(SOURCE, ["part"], named=["part7"])
    assert counted == total
    assert any(start <= 7 * 13 + 1 <= end for start, end in lines)

    lines, _ = lines_for(SOURCE, [], at=[(200, 204)])
    assert any(start <= 200 and end >= 204 for start, end in lines)
    assert lines_for("small = 1\n", ["small"]) == ((), 1)


@given(st.text(alphabet="abc def\n():", max_size=3_000), st.lists(st.sampled_from(["abc", "def"]), max_size=2))
def test_lines_are_of_the_file_and_in_order(text: str, asked: list[str]) -> None:
    lines, total = lines_for(text, asked, at=[(5, 9)])

    assert all(1 <= start <= end <= total for start, end in lines)
    assert list(lines) == sorted(lines)


# -- The gate ---------------------------------------------------------------------------------------------


def place(path: str, probability: float, *, named: bool = False) -> Place:
    return Place(path=path, probability=probability, tier="named" if named else "words", reasons=("words",))


def test_the_gate_is_silent_unless_it_pays() -> None:
    """A-18: few words, a path in the prompt, nothing likely or a list that costs more than it saves: silence."""
    prompt = "the login redirect loses the session cookie"
    sure = [place("a.py", 0.7), place("b.py", 0.3), place("c.py", 0.01)]

    assert [each.path for each in worth_saying(prompt, sure, cost_tokens=60)] == ["a.py", "b.py"]
    assert worth_saying("commit", sure, cost_tokens=60) == []
    assert worth_saying(prompt, [place("a.py", 0.7, named=True)], cost_tokens=60) == []
    assert worth_saying(prompt, [place("a.py", 0.04)], cost_tokens=1) == []
    assert worth_saying(prompt, sure, cost_tokens=400) == []
    assert len(listed([place(f"{number}.py", 0.5) for number in range(9)])) == 5


def test_the_gate_learns_what_lists_are_worth() -> None:
    """A space's own history opens the gate where lists save much, and closes it where they save nothing."""
    prompt = "the login redirect loses the session cookie"
    named = [place("a.py", 0.9, named=True)]
    useless, useful = Worth(), Worth()
    for _ in range(30):
        useless = useless.with_outcome("open", 0.7, 0)
        useful = useful.with_outcome("named", 0.9, 400)

    assert worth_saying(prompt, [place("a.py", 0.7)], cost_tokens=60, worth=useless.by_kind) == []
    assert worth_saying(prompt, named, cost_tokens=60, worth=useful.by_kind) == named
    few = Worth().with_outcome("open", 0.9, 900)
    assert worth_saying(prompt, [place("a.py", 0.9)], cost_tokens=10, worth=few.by_kind) == []
