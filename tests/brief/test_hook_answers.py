"""What hooks will show: a brief for the start of a session, and the files from which prompts are answered."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

import mica
from mica import hook
from mica.brief.hook_answers import (
    ENTRY,
    TOKENS_MAX,
    TREES_MAX,
    find_stemmer,
    remove_answers,
    write_engine,
    write_prompt_answer,
    write_session_answer,
)
from mica.clients.spool import PromptAnswer, SessionAnswer, Spools, hooks_folder
from mica.hook import OLD_ENTRY
from mica.model.brief import Brief
from mica.model.event import EventId
from mica.navigation.navigator import Navigator
from mica.settings import ObserveSettings, Settings
from mica.store.reference.store import EphemeralStore
from mica.testing import HandClock
from mica.testing.builders import START_AT


@pytest.fixture
def spools(tmp_path: Path) -> Spools:
    return Spools(hooks_folder(tmp_path / "space.db"))


class Briefs:
    """Makes briefs of `size` characters per token of the budget, and notes the budgets and the recorded briefs."""

    def __init__(self, size: float, text: str = "x") -> None:
        self.size = size
        self.text = text
        self.budgets: list[int] = []
        self.recorded: list[Brief] = []
        self.log = EphemeralStore().log

    async def make(self, *, budget_tokens: int, deadline_s: float, is_preview: bool) -> Brief:
        assert is_preview, "a brief that nobody received is not recorded"
        self.budgets.append(budget_tokens)
        text = self.text * round(self.size * budget_tokens)
        return Brief(query="", text=text, passages=(), tokens=budget_tokens, budget_tokens=budget_tokens)

    def record(self, brief: Brief) -> EventId:
        self.recorded.append(brief)
        return EventId(f"r{len(self.recorded)}")

    async def write(self, spools: Spools, settings: Settings) -> SessionAnswer | None:
        await write_session_answer(
            spools, self.log, settings=settings, brief=self.make, receipt=self.record, now=START_AT
        )
        return spools.session_answer()


def with_brief(settings: Settings, **changed: object) -> Settings:
    return msgspec.structs.replace(settings, brief=msgspec.structs.replace(settings.brief, **changed))


async def test_a_brief_is_made_smaller_until_a_hook_can_print_it(spools: Spools, home: Settings) -> None:
    """Clients move a longer output into a file, or drop it. Only the brief that is shown is recorded."""
    briefs = Briefs(8.0)

    answer = await briefs.write(spools, with_brief(home, budget_tokens=1_500))

    assert briefs.budgets == [1_500, 1_200, 960]
    assert answer is not None
    assert len(answer.text) == 8 * 960 <= hook.ANSWER_CHARACTERS_MAX < 8 * 1_200
    assert [(each.text, each.budget_tokens) for each in briefs.recorded] == [(answer.text, 960)]
    assert answer.receipt == "r1"


@pytest.mark.parametrize(("setting", "budget"), [(300, 300), (100_000, TOKENS_MAX)])
async def test_the_budget_is_that_of_the_settings_up_to_what_every_client_accepts(
    setting: int, budget: int, spools: Spools, home: Settings
) -> None:
    briefs = Briefs(1.0)

    await briefs.write(spools, with_brief(home, budget_tokens=setting))

    assert briefs.budgets == [budget]


async def test_an_unchanged_brief_is_neither_written_nor_recorded_again(spools: Spools, home: Settings) -> None:
    briefs = Briefs(1.0)
    file = spools.folder / hook.SESSION_ANSWER.decode()
    first = await briefs.write(spools, home)
    before = file.stat().st_ino

    assert await briefs.write(spools, home) == first
    assert file.stat().st_ino == before
    assert len(briefs.recorded) == 1

    briefs.text = "y"
    second = await briefs.write(spools, home)
    assert second is not None
    assert (second.text[0], second.receipt) == ("y", "r2")


async def test_an_empty_brief_replaces_the_earlier_one_and_is_not_recorded(spools: Spools, home: Settings) -> None:
    """Hooks then print only what was spooled since, for which they need the budget."""
    assert await Briefs(1.0).write(spools, home) is not None

    empty = Briefs(0.0)

    answer = await empty.write(spools, home)
    assert answer is not None
    assert (answer.text, answer.receipt, answer.budget_tokens) == ("", None, home.brief.budget_tokens)
    assert empty.recorded == []


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with one file."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "session.py").write_text("def renew_cookie():\n    pass\n", encoding="utf-8")
    return folder


async def write_prompts(spools: Spools, root: Path | None, settings: Settings) -> PromptAnswer | None:
    """Write the answer to prompts for a working tree whose space is empty."""
    store = EphemeralStore()
    navigator = None
    if root is not None:
        navigator = Navigator(store.log, store.trails, root, space="shop", home=settings.home)
    await write_prompt_answer(spools, navigator, root=root, settings=settings, now=START_AT)
    return spools.prompt_answer()


async def test_a_hook_finds_every_file_that_an_answer_to_a_prompt_needs(
    spools: Spools, home: Settings, project: Path
) -> None:
    settings = msgspec.structs.replace(home, observe=ObserveSettings(holdout=0.25))

    made = await write_prompts(spools, project, settings)

    assert made is not None
    assert (Path(made.engine) / f"{made.entry.partition(':')[0].replace('.', '/')}.py").is_file()
    assert Path(made.library).is_dir()
    assert Path(made.past).is_file()
    assert list(made.trees) == [str(project)]
    assert Path(made.trees[str(project)]).is_file()
    assert made.holdout == 0.25


async def test_an_unchanged_answer_to_prompts_is_not_written_again(
    spools: Spools, home: Settings, project: Path
) -> None:
    made = await write_prompts(spools, project, home)
    file = spools.folder / hook.PROMPT_ANSWER.decode()
    before = file.stat().st_ino

    assert await write_prompts(spools, project, home) == made
    assert file.stat().st_ino == before


async def test_the_latest_working_trees_are_answered(spools: Spools, home: Settings, project: Path) -> None:
    """The tree that was written least recently makes room for a new one; writing a tree again renews it."""
    first = await write_prompts(spools, project, home)
    assert first is not None
    others = {f"/elsewhere/{number}": "index" for number in range(TREES_MAX)}
    spools.write_answer(hook.PROMPT_ANSWER, msgspec.structs.replace(first, trees=others))

    made = await write_prompts(spools, project, home)

    assert made is not None
    assert list(made.trees) == [str(project), *list(others)[: TREES_MAX - 1]]
    spools.write_answer(hook.PROMPT_ANSWER, msgspec.structs.replace(first, trees={"/elsewhere": "index", **made.trees}))
    again = await write_prompts(spools, project, home)
    assert again is not None
    assert list(again.trees)[:2] == [str(project), "/elsewhere"]


@pytest.mark.parametrize("reason", ["offers are off", "no working tree"])
async def test_prompts_are_no_longer_answered(spools: Spools, home: Settings, project: Path, reason: str) -> None:
    """The past work in the files would otherwise outlive the setting."""
    made = await write_prompts(spools, project, home)
    assert made is not None
    off = msgspec.structs.replace(home, observe=ObserveSettings(offers=False))

    if reason == "offers are off":
        assert await write_prompts(spools, project, off) is None
    else:
        assert await write_prompts(spools, None, home) is None

    assert not Path(made.past).exists()


async def test_withdrawn_text_is_in_no_answer(spools: Spools, home: Settings, project: Path) -> None:
    """keeps: K-53. All answers are removed at once, because any of them may contain it."""
    await Briefs(1.0).write(spools, home)
    made = await write_prompts(spools, project, home)
    assert made is not None

    remove_answers(spools)
    remove_answers(spools)  # there may be nothing to remove

    assert (spools.session_answer(), spools.prompt_answer()) == (None, None)
    assert not Path(made.past).exists()


def test_the_current_entry_and_the_one_of_old_launchers_are_the_same_function(tmp_path: Path) -> None:
    """A launcher that an older mica installed imports OLD_ENTRY from the engine that `prompt.json` names."""
    (module, function), (old_module, old_function) = ENTRY.split(":"), OLD_ENTRY.split(":")
    program = (
        f"import sys; sys.path[:0] = [{str(write_engine(tmp_path))!r}, {str(find_stemmer())!r}];"
        f"from {module} import {function} as new; from {old_module} import {old_function} as old; print(new is old)"
    )

    done = subprocess.run([sys.executable, "-I", "-S", "-c", program], capture_output=True, check=True)

    assert done.stdout == b"True\n"


async def test_lines_that_a_hook_may_leave_out_are_named_by_their_places(spools: Spools, home: Settings) -> None:
    """With what it needs to decide: the statement, whether it was open, the sessions it is from."""
    async with mica.open(spools.folder.with_name("space.db"), settings=home) as memory:
        with memory.context(session="s1"):
            memory.mark("Is the cookie set\nbefore the redirect?", tags="question")
        with memory.context(session="s2"):
            memory.mark("Deploys need the VPN", tags="gotcha")
        memory.mark("Always use uv run", tags="rule")
        await memory.clients.ingest()

    answer = Spools(hooks_folder(spools.folder.with_name("space.db"))).session_answer()

    assert answer is not None
    assert answer.is_complete
    named = {answer.text[line.said_start : line.said_end]: line for line in answer.lines}
    assert {said: (line.is_open, line.sessions) for said, line in named.items()} == {
        "Always use uv run": (False, ()),
        "Is the cookie set before the redirect?": (True, ("s1",)),
        "Deploys need the VPN": (False, ("s2",)),
    }
    for said, line in named.items():
        whole = answer.text[line.start : line.end]
        assert whole.startswith("- ")
        assert said in whole
        assert answer.text[line.end] == "\n"


async def test_sessions_without_an_end_are_named_with_their_last_prompt(tmp_path: Path, home: Settings) -> None:
    clock = HandClock(START_AT)
    async with mica.open(tmp_path / "space.db", settings=home, clock=clock) as memory:
        for session, minutes in (("old", 90), ("ended", 40), ("turn over", 30), ("busy", 20), ("by hand", 10)):
            here = memory.context(session=session)
            if session != "by hand":
                here = memory.context(session=session, client="codex")
            with here:
                at = START_AT - timedelta(minutes=minutes)
                memory.mark("First task", tags="prompt", origin="user", at=at)
                memory.mark(f"Task of {session}", tags="prompt", origin="user", at=at + timedelta(minutes=1))
                if session == "turn over":
                    memory.mark("Done", tags="closing", at=at + timedelta(minutes=5))
                if session == "ended":
                    memory.emit("session.ended", {}, at=at + timedelta(minutes=6))
        await memory.clients.ingest()

    answer = Spools(hooks_folder(tmp_path / "space.db")).session_answer()

    assert answer is not None
    assert [(each.prompt, each.closed_at > each.at) for each in answer.running] == [
        ("Task of turn over", True),
        ("Task of busy", False),
    ]
    assert [each.file for each in answer.running] == [hook.spool_name("turn over"), "busy"]


async def test_a_brief_that_is_off_is_replaced_by_one_line(spools: Spools, home: Settings) -> None:
    class Off(Briefs):
        async def make(self, *, budget_tokens: int, deadline_s: float, is_preview: bool) -> Brief:
            return Brief(query="", text="", passages=(), tokens=0, budget_tokens=budget_tokens, is_off=True)

    answer = await Off(1.0).write(spools, home)

    assert answer is not None
    assert "`mica briefs on`" in answer.text
    assert not answer.is_complete, "so a hook adds nothing to it"
