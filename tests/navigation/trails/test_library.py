"""`evolve` makes new versions of named trails whose files drifted, and measures their savings."""

from __future__ import annotations

import os
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

import mica
from mica.clients.installer import InstalledParts, InstallRecord
from mica.model.event import EventQuery
from mica.model.trail import MEASURED
from mica.navigation.anchors.anchor import content_hash
from mica.navigation.trails.publication import withdraw
from mica.settings import TrailSettings
from mica.testing import HandClock

BODY = ["def first():", "    return 1", "", "def renew_session(cookie):", "    cookie.renew()", "    return cookie"]
TASK = "renew the session cookie of the login"


class Project:
    """A working tree with a trail over two files, walked to success."""

    def __init__(self, folder: Path, clock: HandClock) -> None:
        self.root = folder / "shop"
        self.clock = clock
        self.write("auth/session.py", BODY)
        self.write("auth/login.py", ["def login():", "    return renew_session(None)"])
        self.git("init", "-q")
        self.commit("Begin")

    def git(self, *words: str) -> None:
        date = {"GIT_COMMITTER_DATE": self.clock().isoformat(), "GIT_AUTHOR_DATE": self.clock().isoformat()}
        identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        subprocess.run(
            ["git", "-C", str(self.root), *identity, *words], check=True, capture_output=True, env=os.environ | date
        )

    def status(self) -> str:
        command = ["git", "-C", str(self.root), "status", "--porcelain"]
        return subprocess.run(command, check=True, capture_output=True).stdout.decode()

    def commit(self, subject: str) -> None:
        self.git("add", "-A")
        self.git("commit", "-qm", subject)
        self.clock.move(minutes=1)

    def write(self, path: str, lines: list[str]) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text("\n".join(lines) + "\n", encoding="utf-8")

    def walk(self, memory: mica.Memory, number: int, *, searched: int = 900) -> None:
        self.clock.move(hours=1)
        shown = {"start_line": 4, "end_line": 6, "total_lines": 6, "content_hash": content_hash(BODY[3:6])}
        steps = [
            {"path": "auth/session.py", "operation": "search", "tokens": searched},
            {"path": "auth/session.py", "operation": "read", "tokens": 20, **shown},
            {"path": "auth/login.py", "operation": "read", "tokens": 10},
        ]
        memory.trails.record(TASK, steps, outcome="success", session=f"s{number}", at=self.clock())


@pytest.fixture
def project(tmp_path: Path, clock: HandClock) -> Project:
    return Project(tmp_path, clock)


@pytest.fixture
async def memory(tmp_path: Path, home: mica.Settings, clock: HandClock, project: Project) -> AsyncIterator[mica.Memory]:
    async with mica.open(tmp_path / "space.db", settings=home, clock=clock) as opened:
        for number in range(10):
            project.walk(opened, number)
        await opened.trails.evolve(root=project.root)
        yield opened


async def test_drift_makes_a_new_version_of_a_trail(memory: mica.Memory, project: Project) -> None:
    """keeps: K-06, TA-11, A-30. Lines move, then a file is renamed; the name, the counts and the key are unchanged."""
    (before,) = await memory.trails.list(state="crystallized")
    assert (before.version, before.steps[0].start_line) == (1, 4)

    project.write("auth/session.py", ["# new", "# lines", "", *BODY])
    project.commit("Say more")
    moved = await memory.trails.evolve(root=project.root)
    again = await memory.trails.evolve(root=project.root)
    (after,) = await memory.trails.list(state="crystallized")

    assert moved.refreshed == (before.name,)
    assert moved.drifted == {before.name: ("auth/session.py: now at 7-9",)}
    assert again.refreshed == ()
    assert (after.version, after.slug, after.key, after.runs) == (2, before.slug, before.key, before.runs)
    assert (after.steps[0].start_line, after.steps[0].end_line) == (7, 9)
    assert after.exact != before.exact

    project.clock.move(hours=1)
    project.git("mv", "auth/session.py", "auth/cookie.py")
    project.commit("Call it by what it holds")
    await memory.trails.evolve(root=project.root)
    (renamed,) = await memory.trails.list(state="crystallized")

    assert renamed.paths == ("auth/cookie.py", "auth/login.py")
    assert (renamed.version, renamed.slug, renamed.runs) == (3, before.slug, before.runs)
    assert (await memory.trails.evolve(root=project.root)).refreshed == ()

    project.clock.move(hours=1)
    (project.root / "auth/login.py").unlink()
    project.commit("Take the login away")
    await memory.trails.evolve(root=project.root)
    project.walk(memory, 50)
    await memory.trails.learn()
    shorter = await memory.trails.show(before.slug)

    assert (shorter.paths, shorter.version, shorter.key) == (("auth/cookie.py",), 4, before.key)


async def test_a_trail_without_remaining_files_is_suspended_with_the_reason(
    memory: mica.Memory, project: Project
) -> None:
    """keeps: TA-11. A trail without files is not offered."""
    for path in ("auth/session.py", "auth/login.py"):
        (project.root / path).unlink()
    project.commit("Start over")

    report = await memory.trails.evolve(root=project.root)

    assert len(report.suspended) == 1
    trail = await memory.trails.show(report.suspended[0])
    assert trail.suspended is not None
    assert "no such file" in trail.suspended


async def test_a_name_chosen_by_a_person_is_kept(memory: mica.Memory, project: Project) -> None:
    """keeps: A-30. Neither a new version nor a new walk changes it."""
    (trail,) = await memory.trails.list(state="crystallized")
    await memory.trails.rename(trail.slug, "cookies")
    project.write("auth/session.py", ["# new", *BODY])
    project.commit("Say more")
    project.walk(memory, 11)

    await memory.trails.evolve(root=project.root)

    (after,) = await memory.trails.list(state="crystallized")
    assert (after.name, after.key) == ("nav:cookies", trail.key)


async def test_savings_are_measured_from_tasks_after_a_trail_was_named(memory: mica.Memory, project: Project) -> None:
    """keeps: TA-05, TA-06, M-14.

    A replay is used until both groups are large enough; losses are reported too.
    """
    assert await memory.events.query(EventQuery(names=(MEASURED,))) == []
    for number in range(20, 28):
        project.walk(memory, number)
    report = await memory.trails.evolve()
    (trail,) = await memory.trails.list(state="crystallized")

    assert report.measured == (trail.name,)
    assert trail.measured is not None
    assert (trail.measured.method, trail.measured.sample, trail.measured.baseline_tokens) == ("replay", 8, 930)
    assert 0 < trail.measured.saving < 900  # the tokens of the search, less the cost of the command
    assert (await memory.trails.evolve()).measured == ()

    for number in range(30, 38):
        project.clock.move(hours=1)
        step = {"path": "auth/session.py", "operation": "read", "tokens": 20}
        walk = memory.trails.record(TASK, [step], outcome="success", session=f"s{number}", at=project.clock())
        with memory.context(parent=walk):
            await memory.trails.track(trail.slug, outcome="success", tokens=2_000)
    await memory.trails.evolve()

    (after,) = await memory.trails.list(state="crystallized")
    assert after.measured is not None
    assert (after.measured.method, after.measured.sample) == ("two arms", 16)
    assert after.measured.saving == 930 - 2_020


async def test_after_an_install_evolve_publishes_updates_and_withdraws_commands(
    tmp_path: Path, home: mica.Settings, memory: mica.Memory, project: Project
) -> None:
    """keeps: A-15, K-06, A-03, A-31. Commands are written, updated and removed automatically, and ignored by git."""
    memory.emit("session.started", {"cwd": str(project.root)})
    exclude = project.root / ".git/info/exclude"
    before = exclude.read_bytes()
    assert (await memory.trails.evolve()).published == ()  # nothing is installed
    home.home.mkdir(parents=True, exist_ok=True)
    record = InstallRecord(clients={"claude-code": InstalledParts(), "codex": InstalledParts()})
    (home.home / "installed.json").write_bytes(msgspec.json.encode(record))

    first = await memory.trails.evolve()
    (trail,) = await memory.trails.list(state="crystallized")
    command = project.root / f".claude/commands/nav/{trail.slug}.md"
    skill = project.root / f".agents/skills/nav-{trail.slug}/SKILL.md"

    assert {str(command), str(skill)} <= set(first.published)
    assert "auth/session.py:4-6" in command.read_text()
    assert project.status() == ""
    assert (await memory.trails.evolve()).published == ()

    project.write("auth/session.py", ["# new", "# lines", "", *BODY])
    project.commit("Say more")
    renewed = await memory.trails.evolve()
    assert str(command) in renewed.published
    assert "auth/session.py:7-9" in command.read_text()

    await memory.trails.suspend(trail.slug, reason="wrong")
    withdrawn = await memory.trails.evolve()
    assert {str(command), str(skill)} <= set(withdrawn.withdrawn)
    assert not command.exists()

    await memory.trails.resume(trail.slug)
    await memory.trails.evolve()
    assert command.exists()
    assert withdraw(home.home) == []
    assert not (project.root / ".claude").exists()
    assert exclude.read_bytes() == before


async def test_evolve_overwrites_no_edited_file_and_can_be_switched_off(
    tmp_path: Path, home: mica.Settings, clock: HandClock, memory: mica.Memory, project: Project
) -> None:
    """keeps: A-30. A hand-written file is not overwritten, and `[trails] publish = false` stops publishing."""
    memory.emit("session.started", {"cwd": str(project.root)})
    home.home.mkdir(parents=True, exist_ok=True)
    (home.home / "installed.json").write_bytes(
        msgspec.json.encode(InstallRecord(clients={"claude-code": InstalledParts()}))
    )
    (trail,) = await memory.trails.list(state="crystallized")
    command = project.root / f".claude/commands/nav/{trail.slug}.md"
    off = msgspec.structs.replace(home, trails=TrailSettings(publish=False))
    async with mica.open(tmp_path / "space.db", settings=off, clock=clock) as silent:
        assert (await silent.trails.evolve()).published == ()

    command.parent.mkdir(parents=True)
    command.write_text("mine")
    await memory.trails.evolve()

    assert command.read_text() == "mine"
    assert withdraw(home.home) == []
    assert command.read_text() == "mine"
