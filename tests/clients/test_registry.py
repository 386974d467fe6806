"""The list of coding agents: complete, consistent with the hook, and open for one more."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import mica
from mica import hook
from mica.clients.registry import BY_HOOK, CLIENTS, READERS, reader_named, reader_of
from mica.errors import InvalidInput

FIXTURES = Path(__file__).parents[1] / "fixtures"
FILES_PER_CLIENT_MAX = 4

TOY = {
    "__init__.py": '''
"""Toy: a coding agent that only tests know."""

from mica.clients.client import Client
from mica.clients.installation import Installation, Machine, OwnedFile
from mica.clients.prompts import PromptFilter
from mica.clients.toy import tools, transcript


def _install(machine: Machine) -> Installation:
    folder = machine.user.folder("TOY_HOME", ".toy")
    hook = OwnedFile(path=folder / "hook.sh", content=machine.hook_command("toy", "UserPromptSubmit"))
    return Installation(name="toy", title="Toy", folder=folder, programs=("toy",), files=(hook,))


CLIENT = Client(
    name="toy",
    title="Toy",
    install=_install,
    reader=transcript,
    transcripts=lambda user: user.folder("TOY_HOME", ".toy"),
    sign=b'"toy_session"',
    drafts=tools.drafts,
    typed=PromptFilter().typed,
)
''',
    "tools.py": """
from mica.clients import tool_effects


def drafts(call, files, tally):
    return [tool_effects.listing(call, call.arguments["path"], files, pattern=None, text="")]
""",
    "transcript.py": """
import msgspec

from mica.clients import reader
from mica.clients.event_builder import EventBuilder, moment
from mica.clients.records import Shape
from mica.clients.reader import TranscriptHead
from mica.clients.toy import tools
from mica.clients.tool_effects import ClientCall

NAME = "toy"


class ToyRecord(msgspec.Struct):
    toy_session: str = ""
    at: float = 0
    cwd: str | None = None
    prompt: str | None = None
    path: str | None = None


RECORD = Shape(ToyRecord)


class ToyTranscript(EventBuilder):
    def take(self, record, *, number, tally):
        self.begin(number, tally)
        self.is_dated(moment(record.at))
        self.place(record.toy_session, branch=None, cwd=record.cwd)
        self.start(cwd=record.cwd, branch=None, version=None)
        if record.prompt:
            self.prompt(str(number), record.prompt)
        if record.path:
            call = ClientCall(id=str(number), tool="ls", arguments={"path": record.path}, cwd=record.cwd)
            self.call(str(number), tools.drafts(call, self.files, tally))
        return self.made


def find(root, *, unreadable=None):
    return reader.find_files(root, is_one=lambda name: name.endswith(".jsonl"), unreadable=unreadable)


def head(path):
    for record in reader.first_records(path, RECORD, limit=1):
        return TranscriptHead(session=record.toy_session, cwd=record.cwd) if record.toy_session else None


extent = reader.file_extent
numbers = reader.line_numbers


def read(path, *, start=0, root=None, closed=True, tally):
    transcript = ToyTranscript(NAME, session=path.stem, root=root)
    return reader.read_records(path, RECORD, transcript, start=start, closed=closed, tally=tally)
""",
}


def test_every_client_has_its_own_names() -> None:
    assert len(CLIENTS) == len(BY_HOOK) == 6
    assert set(READERS) == set(CLIENTS) - {"cursor"}
    assert all(name == reader.NAME for name, reader in READERS.items())


def test_the_hook_lists_only_registered_clients() -> None:
    """The hook imports nothing of mica, so it has a table of its own."""
    assert set(hook.CLIENTS) <= set(BY_HOOK)


def test_a_transcript_is_read_by_the_client_that_wrote_it(opencode_db: Path) -> None:
    session = next(iter(reader_named("opencode").find(opencode_db)))
    recordings = {
        "claude-code": next((FIXTURES / "claude-code").rglob("*.jsonl")),
        "codex": FIXTURES / "codex" / "rollout.jsonl",
        "copilot": FIXTURES / "copilot" / "events.jsonl",
        "gemini": FIXTURES / "gemini" / "session.jsonl",
        "opencode": session,
    }

    assert {name: reader_of(path).NAME for name, path in recordings.items()} == {name: name for name in READERS}


def test_an_unknown_file_is_read_as_claude_codes(tmp_path: Path) -> None:
    path = tmp_path / "notes.jsonl"
    path.write_text('{"session_meta": 1}\n')

    assert reader_of(path) is READERS["claude-code"]


def test_a_client_without_transcripts_is_refused_by_name() -> None:
    with pytest.raises(InvalidInput, match="reads no transcripts of 'cursor'"):
        reader_named("cursor")


def test_a_new_client_is_one_package_and_one_registry_line(tmp_path: Path) -> None:
    """Adds a toy client to a copy of the source tree: mica imports its transcript, and its installed hook records."""
    source, copy = Path(mica.__file__).parent, tmp_path / "src" / "mica"
    shutil.copytree(source, copy, ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "clients" / "toy").mkdir()
    for name, text in TOY.items():
        (copy / "clients" / "toy" / name).write_text(text.lstrip())
    registry = copy / "clients" / "registry.py"
    lines = registry.read_text().replace(", opencode\n", ", opencode, toy\n")
    registry.write_text(lines.replace("cursor.CLIENT,", "cursor.CLIENT, toy.CLIENT,"))
    home = tmp_path / "home"
    (home / ".toy").mkdir(parents=True)
    (home / ".toy" / "s1.jsonl").write_text(
        '{"toy_session":"s1","at":1.7e12,"cwd":"/shop","prompt":"Tidy the shop"}\n'
        '{"at":1.7e12,"cwd":"/shop","path":"src"}\n'
    )

    def start(*command: str, typed: str = "") -> str:
        done = subprocess.run(
            command,
            input=typed,
            capture_output=True,
            env={"HOME": str(home), "PYTHONPATH": str(copy.parent), "PATH": os.defpath},
            cwd=home,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def run(*words: str) -> str:
        return start(sys.executable, "-m", "mica", *words)

    assert "toy: 1 transcript" in run("import", "toy", "--store", "toy.db")
    assert "Tidy the shop" in run("search", "shop", "--store", "toy.db")
    run("install", "toy", "--yes")
    assert "mica-hook toy UserPromptSubmit" in (home / ".toy" / "hook.sh").read_text()
    prompt = {"session_id": "s2", "hook_event_name": "UserPromptSubmit", "prompt": "Paint the door", "cwd": str(home)}
    start("sh", str(home / ".toy" / "hook.sh"), typed=json.dumps(prompt))
    assert "Paint the door" in run("search", "door")
    before = {path.relative_to(source): path.read_bytes() for path in source.rglob("*.py")}
    after = {path.relative_to(copy): path.read_bytes() for path in copy.rglob("*.py")}
    assert len([path for path in after if after[path] != before.get(path)]) <= FILES_PER_CLIENT_MAX
