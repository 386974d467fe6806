"""The trails of a space in every store: learned, chosen, tracked, switched, evolved."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, time, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import msgspec
import pytest

import mica
from mica.errors import InvalidInput, UnknownTrail
from mica.model.event import EventId, EventQuery
from mica.model.trail import CRYSTALLIZED, EVOLVED, OFFERED, USED, Trail, key_of
from mica.model.walk import Outcome, Step
from mica.navigation.trails.commands import in_project
from mica.navigation.trails.learner import learn_trails
from mica.settings import Settings, TrailSettings
from mica.testing import HandClock
from mica.testing.builders import START_AT
from mica.upkeep.schedule import Job

FILES = ("auth.py", "session.py")


def step(path: str, lines: tuple[int, int] | None = None, *, tokens: int = 100) -> Step:
    start, end = lines or (None, None)
    return Step(
        path=path, operation="read", start_line=start, end_line=end, tokens=tokens, at=START_AT, event=EventId("e")
    )


async def walk(
    memory: mica.Memory, clock: HandClock, session: str, *, outcome: Outcome = "success", paths: Sequence[str] = FILES
) -> str | None:
    clock.move(minutes=10)
    return await memory.trails.log(
        "Fix the login redirect", map(step, paths), outcome=outcome, session=session, agent="scout"
    )


async def test_a_logged_navigation_is_a_run_of_its_trail(memory: mica.Memory, clock: HandClock) -> None:
    """keeps: A-11, TA-07, TA-03. `log` returns the key, each run is counted, and the third success makes it hot."""
    states = []
    key = None
    for number in range(1, 4):
        key = await walk(memory, clock, f"s{number}")
        trail = await memory.trails.show(str(key))
        assert (trail.key, trail.runs, trail.successes) == (key_of(FILES), number, number)
        states.append(trail.state)
    assert states == ["observed", "observed", "hot"]
    assert (await memory.trails.show(str(key))).agents["scout"].runs == 3

    failed = await walk(memory, clock, "s9", outcome="failure", paths=("x.py", "y.py"))
    assert (await memory.trails.show(str(failed))).success == 0.0


async def test_a_navigation_consists_of_steps_not_bare_paths(memory: mica.Memory) -> None:
    """keeps: K-03. Strings and paths outside the project are refused, and one file is not a trail."""
    with pytest.raises(InvalidInput, match="is not a step"):
        await memory.trails.log("Fix", ["auth.py", "session.py"])  # type: ignore[list-item]  # that is the test
    with pytest.raises(InvalidInput, match="not a path within"):
        await memory.trails.log("Fix", [step("/etc/passwd")])
    with pytest.raises(InvalidInput, match="no outcome 'splendid'"):
        await memory.trails.log("Fix", [], outcome="splendid")  # type: ignore[arg-type]  # that is the test
    assert await memory.trails.log("Fix", [step("auth.py")]) is None
    assert await memory.trails.list() == []


async def test_a_workflow_reports_its_files_in_one_call(memory: mica.Memory) -> None:
    """keeps: A-20. The kind of task is `adw_<workflow>`."""
    key = await memory.trails.log("", map(step, FILES), workflow="Build iso")
    assert (await memory.trails.show(str(key))).shape == "adw_build_iso"


async def test_a_trail_is_chosen_loaded_and_tracked(memory: mica.Memory, clock: HandClock, tmp_path: Path) -> None:
    """keeps: TA-12, A-16, A-07, A-45, A-22.

    A choice has the kind of match; its files load in order; a use and its outcome count for the trail and its session.
    """
    for number in range(3):
        await walk(memory, clock, f"s{number}")

    (choice,) = await memory.trails.choose("The login redirect loses the session again")

    assert (choice.match, choice.trail.name) == ("words", "nav:fix-login-redirect")
    assert choice.reason == "the task mentions login, redirect, session"
    memory.trails.offer([choice])
    for name in FILES:
        (tmp_path / name).write_text(f"# the text of {name}\n")
    with memory.context(session="s7", agent="smith"):
        loaded = await memory.trails.load(choice.trail.key, root=tmp_path, outcome="failure")
    assert 0 < loaded.text.index("the text of auth.py") < loaded.text.index("the text of session.py")
    trail = await memory.trails.show(choice.trail.key)
    assert (trail.runs, trail.successes, trail.failures) == (4, 3, 1)
    assert trail.agents["smith"].failures == 1
    (used,) = await memory.events.query(EventQuery(names=(USED,)))
    assert (used.context.session, used.data["key"]) == ("s7", trail.key)
    assert used.data["tokens"] == loaded.tokens
    (offered,) = await memory.events.query(EventQuery(names=(OFFERED,)))
    assert offered.data["match"] == "words"
    assert (
        await memory.trails.choose("The login redirect of a session") == []
    )  # three successes of four are too few to offer it
    assert await memory.trails.choose("Draw a cat") == []


async def test_a_crystallized_trail_keeps_its_name(memory: mica.Memory, clock: HandClock) -> None:
    """keeps: A-10, A-14, A-32.

    A person may name it before it passes the gate; it can be renamed, suspended and resumed.
    """
    key = str(await walk(memory, clock, "s1", outcome="unknown"))

    named = await memory.trails.crystallize(key, slug="nav:login")
    assert (named.name, named.version, named.by, named.state) == ("nav:login", 1, "user", "crystallized")
    with pytest.raises(InvalidInput, match="nav:login is taken"):
        await memory.trails.create("login", [step("z.py")])
    assert (await memory.trails.rename("login", "sign-in")).name == "nav:sign-in"
    assert (await memory.trails.suspend("sign-in", reason="moved")).suspended == "moved"
    assert (await memory.trails.suspend("sign-in", reason="moved")).state == "cooling"
    assert (await memory.trails.resume("sign-in")).state == "crystallized"
    with pytest.raises(UnknownTrail, match="no trail 'login'"):
        await memory.trails.show("login")
    await walk(memory, clock, "s2")
    assert (await memory.trails.show("sign-in")).runs == 2


async def test_a_trail_is_made_by_hand(memory: mica.Memory) -> None:
    """keeps: A-24, A-32, K-03. Steps are ranges and whole files, in order."""
    made = await memory.trails.create(
        "payment-flow",
        [step("payment/stripe.ts", (1, 200)), step("models/transaction.ts"), step("webhooks/payment.ts", (50, 150))],
        description="Paying",
    )
    assert [(each.path, each.start_line, each.end_line) for each in made.steps] == [
        ("payment/stripe.ts", 1, 200),
        ("models/transaction.ts", None, None),
        ("webhooks/payment.ts", 50, 150),
    ]
    assert (made.entry, made.runs, made.measured) == ("payment/stripe.ts", 0, None)
    with pytest.raises(InvalidInput, match="1 to 12 files"):
        await memory.trails.create("empty", [])
    await memory.trails.log("Fix", map(step, FILES))
    with pytest.raises(InvalidInput, match="is only observed"):
        await memory.trails.rename(key_of(FILES), "x")


async def test_evolution_crystallizes_trails_that_pass_the_gate_once(memory: mica.Memory, clock: HandClock) -> None:
    """keeps: A-04, A-14, A-17, A-31, K-01, K-02, K-49. Nine successes pass 0.95; later steps make a new version."""
    for number in range(8):
        await walk(memory, clock, f"s{number}")
    report = await memory.trails.evolve()
    assert (report.crystallized, report.hot) == ((), ("nav:fix-login-redirect",))
    await walk(memory, clock, "s8")

    report = await memory.trails.evolve()
    assert report.crystallized == ("nav:fix-login-redirect",)
    assert report.states == {"crystallized": 1}
    trail = await memory.trails.show("fix-login-redirect")
    assert (trail.by, trail.version) == ("rule", 1)
    again = await memory.trails.evolve()
    assert (again.crystallized, again.refreshed) == ((), ())
    assert len(await memory.events.query(EventQuery(names=(EVOLVED,)))) == 1

    clock.move(minutes=10)
    await memory.trails.log("Fix the login", [step("auth.py", (5, 9)), step("session.py")], session="s9")
    assert (await memory.trails.show("fix-login-redirect")).drifted
    assert (await memory.trails.evolve()).refreshed == ("nav:fix-login-redirect",)
    trail = await memory.trails.show("fix-login-redirect")
    assert (trail.version, trail.drifted, trail.steps[0].start_line) == (2, False, 5)

    clock.move(days=31)
    assert (await memory.trails.evolve()).cooling == ("nav:fix-login-redirect",)
    clock.move(days=30)
    assert (await memory.trails.evolve()).archived == ("nav:fix-login-redirect",)
    assert await memory.trails.list() == []
    assert [each.state for each in await memory.trails.list(with_archived=True)] == ["archived"]


async def test_a_rebuild_learns_the_same_trails(memory: mica.Memory, clock: HandClock) -> None:
    """keeps: A-45. A trail is a projection of the log."""
    for number in range(3):
        await walk(memory, clock, f"s{number}")
    await memory.trails.crystallize(key_of(FILES), slug="login")
    before = await memory.trails.list()

    await memory.upkeep.rebuild()

    assert await memory.trails.list() == before


async def test_no_trail_contains_purged_files(memory: mica.Memory, clock: HandClock) -> None:
    """keeps: U-08. The trail and its name are removed, and other trails remain."""
    for number in range(3):
        await walk(memory, clock, f"s{number}", paths=("secret_plan.py", "auth.py"))
        await walk(memory, clock, f"t{number}")
    await memory.trails.crystallize(key_of(("secret_plan.py", "auth.py")), slug="plan")

    await memory.purge(value="secret_plan.py")

    trails = await memory.trails.list(with_archived=True)
    assert [trail.paths for trail in trails] == [FILES]
    assert await memory.events.query(EventQuery(names=(CRYSTALLIZED,))) == []


async def test_purging_a_prompt_removes_the_trail_name_made_from_it(memory: mica.Memory, clock: HandClock) -> None:
    """keeps: U-08. A slug and a description are made of words of prompts."""
    await walk(memory, clock, "s1")
    await memory.trails.crystallize(key_of(FILES))
    prompt = next(event for event in await memory.events.query() if event.name == "mark")

    purged = await memory.purge(ids=[prompt.id])

    assert purged.events == 2
    assert await memory.events.query(EventQuery(names=(CRYSTALLIZED,))) == []


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("by", ["ids", "session"])
async def test_purging_a_prompt_removes_every_event_with_the_trail_name(
    memory: mica.Memory, clock: HandClock, *, by: str, named: bool
) -> None:
    """keeps: U-08. This includes offers, uses, renames and reports. Events of other trails remain."""
    for number in range(9):
        await walk(memory, clock, f"s{number}")
    await memory.trails.log("Ship the parcel", map(step, ("x.py", "y.py")), session="other")
    prompts = await memory.events.query(EventQuery(names=("mark",)))
    if named:
        await memory.trails.evolve()
        assert await memory.events.query(EventQuery(names=(EVOLVED,)))
    for about in ("auth.py", "x.py"):
        assert await memory.trails.explore(about)
    await memory.trails.track(key_of(FILES))
    if named:
        await memory.trails.rename(key_of(FILES), "login-redirects")

    for number, prompt in enumerate(prompts[:9]):
        await (memory.purge(ids=[prompt.id]) if by == "ids" else memory.purge(session=f"s{number}"))

    events = await memory.events.query(EventQuery(limit=None))
    assert [event.name for event in events if b"login" in event.body] == []
    offered = {event.data["key"] for event in events if event.name == OFFERED}
    assert offered == {key_of(FILES), key_of(("x.py", "y.py"))}  # a key contains no words


async def test_a_purge_keeps_the_counts_of_a_trail_and_a_name_chosen_by_a_person(
    memory: mica.Memory, clock: HandClock
) -> None:
    """keeps: U-08, A-30.

    After the purge of one prompt of many, the trail keeps its other runs and the chosen name.
    """
    for number in range(4):
        await walk(memory, clock, f"s{number}")
    await memory.trails.crystallize(key_of(FILES), slug="sign-in")
    await memory.trails.track("sign-in", outcome="success")
    first = next(event for event in await memory.events.query() if event.name == "mark")

    await memory.purge(ids=[first.id])

    trail = await memory.trails.show("sign-in")
    assert (trail.key, trail.by, trail.version) == (key_of(FILES), "user", 1)
    assert len(await memory.events.query(EventQuery(names=(USED,)))) == 1
    assert trail.runs == 4  # the three remaining walks, and the use
    assert first.id not in trail.walks
    await memory.purge(value="sign-in")
    assert [event for event in await memory.events.query(EventQuery(limit=None)) if b"sign-in" in event.body] == []


async def test_a_purge_updates_published_commands(memory: mica.Memory, clock: HandClock, tmp_path: Path) -> None:
    """keeps: U-08, K-10. Unedited files are removed or rewritten; an edited one is reported."""
    await walk(memory, clock, "s1")
    await memory.trails.crystallize(key_of(FILES))
    await memory.trails.create("parcel", [step("x.py"), step("y.py")])
    await memory.trails.publish(in_project(tmp_path))
    edited = tmp_path / ".claude/skills/nav-fix-login-redirect/SKILL.md"
    edited.write_text(edited.read_text() + "Mind the cookies.\n")
    before = {path for path in tmp_path.rglob("*.md") if "login" in path.read_text()}
    assert len(before) == 4
    [prompt] = await memory.events.query(EventQuery(names=("mark",)))
    aside = memory.emit("build.done", {"text": "all is well"})
    assert str(edited) not in "".join((await memory.purge(ids=[aside])).unreached)

    purged = await memory.purge(ids=[prompt.id])

    assert {path for path in tmp_path.rglob("*.md") if "login" in path.read_text()} == {edited}
    assert set(purged.removed) | set(purged.exports) == {str(path) for path in before - {edited}}
    assert [line for line in purged.unreached if str(edited) in line]
    assert (tmp_path / ".claude/commands/nav/parcel.md").exists()


async def test_a_place_of_publication_is_recorded_once(memory: mica.Memory, tmp_path: Path) -> None:
    """keeps: U-08. A dry run records nothing. A purge by time keeps the record, which a later purge needs."""
    await memory.trails.create("parcel", [step("x.py"), step("y.py")])
    await memory.trails.publish(in_project(tmp_path), dry_run=True)
    assert await memory.trails.publications() == []
    for _ in range(2):
        await memory.trails.publish(in_project(tmp_path))
    await memory.purge(since=START_AT - timedelta(days=1))
    [where] = await memory.trails.publications()
    assert where.destination == in_project(tmp_path)


@pytest.mark.parametrize("named", [False, True])
async def test_a_trail_is_removed_when_all_its_prompts_are_retracted(
    memory: mica.Memory, clock: HandClock, named: bool
) -> None:
    """keeps: A-45. Its runs, name and description came from them, whether it was crystallized or not."""
    for number in range(2):
        await walk(memory, clock, f"s{number}")
    if named:
        await memory.trails.crystallize(key_of(FILES))
    first, second = await memory.events.query(EventQuery(names=("mark",)))

    await memory.retract(first.id, reason="meant for another project")
    assert [trail.runs for trail in await memory.trails.list(with_archived=True)] == [1]

    await memory.retract(second.id, reason="meant for another project")
    assert await memory.trails.list(with_archived=True) == []


async def test_learning_is_switched_per_space_and_keeps_its_trails(memory: mica.Memory, clock: HandClock) -> None:
    """keeps: A-47, A-22. While it is off, nothing is learned or crystallized; afterwards everything is learned."""
    await walk(memory, clock, "s1")
    assert len(await memory.trails.list()) == 1
    await memory.trails.switch(on=False)
    await walk(memory, clock, "s2", paths=("x.py", "y.py"))

    assert not await memory.trails.is_learning()
    assert len(await memory.trails.list()) == 1
    assert (await memory.trails.evolve()).trails == 1
    await memory.trails.switch(on=True)
    assert len(await memory.trails.list()) == 2


async def test_stats_count_what_tasks_cost_without_help(memory: mica.Memory, clock: HandClock) -> None:
    """keeps: A-25, A-01. Walks, kinds of task, and tokens per task are counted from the log."""
    edit = msgspec.structs.replace(step("auth.py", tokens=0), operation="edit")
    await memory.trails.log("Fix the login", [*map(step, FILES), edit, step("late.py")], session="s1", agent="scout")
    await memory.trails.log("Explain the login", map(step, FILES), session="s2", agent="scout")

    found = await memory.trails.stats()

    assert (found.walks, found.agents, found.known_outcomes) == (2, {"scout": 2}, 0)
    costs = {each.shape: (each.tasks, each.tokens_mean, each.tokens_before_edit_median) for each in found.baselines}
    assert costs == {"fix": (1, 300, 200), "explain": (1, 200, 0)}


async def test_exploring_a_path_offers_the_best_three(memory: mica.Memory, clock: HandClock) -> None:
    """keeps: A-33, A-09. Trails match by path, or else by words; the offers are recorded."""
    for number in range(5):
        await walk(memory, clock, f"s{number}", paths=(f"src/auth/{number}.py", f"lib/{number}.ts"))
    assert len(await memory.trails.explore("src/auth")) == 3
    assert [choice.match for choice in await memory.trails.explore("fix the login redirect now")] == ["words"] * 3
    assert await memory.trails.explore("src/nowhere") == []
    assert len(await memory.events.query(EventQuery(names=(OFFERED,)))) == 6


async def test_a_commit_in_a_walk_is_a_success(memory: mica.Memory) -> None:
    """keeps: TA-09. A commit counts as success; closing words do not."""
    with memory.context(session="s1"):
        prompt = memory.mark("Fix the login", tags=("prompt",))
        for path in FILES:
            memory.emit("file.read", {"path": path}, parent=prompt)
        memory.mark("All done!", tags=("closing",), parent=prompt)
        assert (await memory.trails.show(key_of(FILES))).success is None
        memory.mark("Fix the redirect", tags=("commit",), parent=prompt)
    assert (await memory.trails.show(key_of(FILES))).success == 1.0


async def test_evolution_is_due_at_three_in_the_morning(tmp_path: Path, home: Settings, clock: HandClock) -> None:
    """keeps: A-17, K-56. It runs at 03:00 in the configured time zone, once, in the next active process."""
    settings = msgspec.structs.replace(home, time_zone="Europe/Berlin")
    async with mica.open(tmp_path / "space.db", settings=settings, clock=clock) as memory:
        ran = {each.kind: each for each in await memory.upkeep.tick()}
        local = ran["evolve"].next_at.astimezone(ZoneInfo("Europe/Berlin"))
        assert (local.hour, local.minute) == (3, 0)
        assert ran["evolve"].next_at - clock() < timedelta(days=1)
        clock.move(hours=12)
        assert "evolve" not in {each.kind for each in await memory.upkeep.tick()}
        clock.move(hours=12)
        assert "evolve" in {each.kind for each in await memory.upkeep.tick()}
    off = msgspec.structs.replace(home, trails=TrailSettings(learn=False))
    async with mica.open(tmp_path / "other.db", settings=off, clock=clock) as memory:
        assert "evolve" not in {each.kind for each in await memory.upkeep.tick()}


def test_a_daily_job_is_due_at_its_hour_in_every_time_zone() -> None:
    """keeps: K-56. This includes the day on which the clocks go back."""

    async def nothing() -> int:
        return 0

    job = Job(kind="evolve", every=timedelta(days=1), at=time(3), zone=ZoneInfo("Europe/Berlin"), run=nothing)
    before = datetime(2026, 10, 24, 23, 0, tzinfo=ZoneInfo("Europe/Berlin"))
    after = job.after(before).astimezone(ZoneInfo("Europe/Berlin"))
    assert (after.day, after.hour) == (25, 3)
    assert job.after(after).astimezone(ZoneInfo("Europe/Berlin")).day == 26


async def test_without_steps_marks_are_not_read_for_walks(memory: mica.Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    """The daily evolution of a space with a million marks and no steps must be cheap."""
    for number in range(20):
        memory.mark(f"Mark {number}", tags=("prompt",))
    await memory.events.position()
    read: list[int] = []
    events = memory._store.log.query

    async def counting_query(query: mica.EventQuery) -> list[mica.Event]:
        rows = await events(query)
        read.append(len(rows))
        return rows

    monkeypatch.setattr(memory._store.log, "query", counting_query)
    await memory.trails.evolve()

    assert max(read) < 20


async def test_learning_is_repeated_after_a_purge_in_between(memory: mica.Memory, clock: HandClock) -> None:
    """keeps: U-08. Learning that began before a purge is discarded and repeated."""
    await walk(memory, clock, "s1", paths=("secret_plan.py", "auth.py"))
    await memory.trails.list()
    library = memory.trails._library
    read: Callable[[tuple[str, ...]], object] = library.walks
    purged: list[object] = []

    async def read_and_purge(names: tuple[str, ...]) -> object:
        walks = await read(names)  # type: ignore[misc]  # an awaitable
        if not purged:
            purged.append(await memory.purge(value="secret_plan.py"))
        return walks

    library.walks = read_and_purge  # type: ignore[assignment, method-assign]  # purges between reading and saving
    await memory.trails.learn()
    del library.walks
    trails: list[Trail] = await memory.trails.list(with_archived=True)
    assert trails == []
    assert learn_trails([], gates=TrailSettings()) == []
