"""A home folder written by commit 932c732 opens and works: its store, waiting segments, spools and installed hook."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import pytest
import Stemmer
from click.testing import CliRunner
from tests.store.sqlite.direct_store import DirectStore

import mica
from mica import hook
from mica.cli import cli
from mica.model.event import Appended, EventQuery
from mica.settings import Settings, load_settings
from mica.store.space import space_of

FIXTURE = Path(__file__).parent / "fixtures" / "home-932c732.tar.xz"
SPACE = "shop-cddd7c19"  # of /home/dev/shop
WRITTEN_PATHS = ("bin/mica-hook", "ingest-command", "installed.json", "plugin/nav/hooks/hooks.json")


class EarlierHome(NamedTuple):
    """The folder, unpacked as if it had been written here."""

    folder: Path
    shop: Path  # the project
    file: Path  # its store

    @property
    def hooks(self) -> Path:
        return self.file.with_name(f"{self.file.name}-hooks")


@pytest.fixture
def home(tmp_path: Path) -> EarlierHome:
    """Files name the interpreter, the home folder and the project by path, and a space is named after a path."""
    with tarfile.open(FIXTURE) as archive:
        archive.extractall(tmp_path, filter="data")
    data, shop = tmp_path / ".local/share/mica", tmp_path / "shop"
    (shop / "auth").mkdir(parents=True)
    (shop / "auth/session.py").write_text("def login(user):\n    return set_cookie(user)\n", encoding="utf-8")
    space = space_of(shop, home=data)
    for file in list((data / "spaces").iterdir()):
        file.rename(file.with_name(file.name.replace(SPACE, space.name)))
    found = EarlierHome(tmp_path, shop, space.file)
    paths = {
        "/home/dev/.": f"{tmp_path}/.",
        "/home/dev/shop": str(shop),
        SPACE: space.name,
        "/home/dev/venv/bin/python": sys.executable,
        "/home/dev/mica/src/mica/hook.py": hook.__file__,
        "/home/dev/library": str(Path(Stemmer.__file__).parent),
    }
    for file in (*(data / name for name in WRITTEN_PATHS), found.hooks / "prompt.json"):
        text = file.read_text(encoding="utf-8")
        for before, after in paths.items():
            text = text.replace(before, after)
        file.write_text(text, encoding="utf-8")
    return found


def settings_of(home: EarlierHome) -> Settings:
    return load_settings({"HOME": str(home.folder)})


def run_hook(home: EarlierHome, event: str, **payload: object) -> str:
    """The output of the launcher that was installed then, as Claude Code runs it."""
    launcher = home.folder / ".local/share/mica/bin/mica-hook"
    fields = {"session_id": "44444444-2222-4333-8444-555555555555", "cwd": str(home.shop), "hook_event_name": event}
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(launcher), event],
        input=json.dumps(fields | payload),
        capture_output=True,
        text=True,
        check=True,
        env={"HOME": str(home.folder), "PATH": "/usr/bin:/bin", "CLAUDECODE": "1"},
    )
    assert done.stderr == ""
    return done.stdout


def test_an_earlier_file_opens_and_keeps_every_promise(home: EarlierHome) -> None:
    """keeps: E-08. It is verified, indexed again and aged like a new one, and events are stored once."""
    store = DirectStore(home.file)
    events = store.log.query(EventQuery(limit=None))

    assert store.files.verify() == []
    assert len(events) > 30
    assert {"mark", "file.read", "crystal.made"} <= {event.name for event in events}
    assert store.files.rebuild() == len(events)
    assert store.files.verify() == []
    assert store.files.age(events[-1].at + timedelta(days=1)) > 0
    assert store.log.query(EventQuery(limit=None)) == events
    assert store.log.append(events) == Appended(repeated=len(events))
    assert store.files.verify() == []
    store.close()


async def test_pending_events_and_spooled_hooks_of_an_earlier_version_are_stored(home: EarlierHome) -> None:
    async with mica.open(home.file, settings=settings_of(home)) as memory:
        await memory.clients.ingest()
        waited = await memory.search("logout in one tab", limit=3)
        spooled = await memory.search("delete the old cookie on logout", limit=3)
        brief = await memory.brief("the session cookie", budget_tokens=800)

        assert waited[0].text.startswith("A logout in one tab ends the session of the other")
        assert any("Delete the old cookie on logout" in hit.text for hit in spooled)
        assert "The cookie is set before the redirect" in brief.text
        assert await memory.crystals.list()
        assert await memory.upkeep.verify() == []
    assert not list(home.file.with_name(f"{home.file.name}-segments").rglob("*.segment"))


def test_an_earlier_installed_hook_serves_the_rendered_session_and_records(home: EarlierHome) -> None:
    """It is the copy installed then; it reads `session.json`, `prompt.json` and the engine of that version."""
    answer = run_hook(home, "SessionStart", source="startup")
    run_hook(home, "UserPromptSubmit", prompt="Where is the session cookie of the login set?")
    spool = home.hooks / "spool/44444444-2222-4333-8444-555555555555.jsonl"

    assert "The cookie is set before the redirect" in json.loads(answer)["hookSpecificOutput"]["additionalContext"]
    assert len(spool.read_text(encoding="utf-8").splitlines()) == 2
    assert not (home.hooks / "failures.jsonl").exists()


def test_an_earlier_installed_hook_works_after_an_ingest_of_today(home: EarlierHome) -> None:
    """The hook of that version can read the `session.json`, `prompt.json` and engine that today's ingest writes."""
    run_hook(home, "SessionStart", source="startup")
    before = (home.hooks / "prompt.json").read_bytes()
    done = CliRunner().invoke(cli, ["ingest", "--store", str(home.file)], env={"HOME": str(home.folder)})
    assert done.exit_code == 0, done.output
    assert (home.hooks / "prompt.json").read_bytes() != before

    answer = run_hook(home, "SessionStart", source="startup")
    run_hook(home, "UserPromptSubmit", prompt="Where is the session cookie of the login set?")

    assert "The cookie is set before the redirect" in json.loads(answer)["hookSpecificOutput"]["additionalContext"]
    assert not (home.hooks / "failures.jsonl").exists()
