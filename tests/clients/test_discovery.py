"""Finding transcripts and planning their imports."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import msgspec
import pytest

from mica.clients.discovery import TranscriptFolder, plan_imports, usual_places
from mica.clients.installation import UserHome
from mica.errors import InvalidSettings
from mica.settings import Settings
from mica.store.space import file_of, space_of

FIXTURES = Path(__file__).parents[1] / "fixtures"


def places_of(settings: Settings, user_home: Path, **environment: str) -> dict[str | None, Path]:
    places = usual_places(settings, UserHome(path=user_home, environment=environment))
    return {place.client: place.path for place in places}


def test_each_client_is_looked_for_in_its_usual_place(home: Settings) -> None:
    assert places_of(home, Path("/ann")) == {
        "claude-code": Path("/ann/.claude/projects"),
        "codex": Path("/ann/.codex"),
        "copilot": Path("/ann/.copilot/session-state"),
        "gemini": Path("/ann/.gemini/tmp"),
        "opencode": Path("/ann/.local/share/opencode/opencode.db"),
    }


def test_variables_of_the_clients_change_their_places(home: Settings) -> None:
    environment = {
        "CLAUDE_CONFIG_DIR": "/claude",
        "CODEX_HOME": "/codex",
        "COPILOT_HOME": "/copilot",
        "GEMINI_CLI_HOME": "/gemini",
        "OPENCODE_DB": "/oc.db",
    }

    assert places_of(home, Path("/ann"), **environment) == {
        "claude-code": Path("/claude/projects"),
        "codex": Path("/codex"),
        "copilot": Path("/copilot/session-state"),
        "gemini": Path("/gemini/.gemini/tmp"),
        "opencode": Path("/oc.db"),
    }


def test_settings_win_over_usual_places(home: Settings) -> None:
    settings = msgspec.structs.replace(home, transcripts=Path("/t"), clients={"codex": Path("/c")})

    places = places_of(settings, Path("/ann"))

    assert (places["claude-code"], places["codex"], places["gemini"]) == (
        Path("/t"),
        Path("/c"),
        Path("/ann/.gemini/tmp"),
    )


def test_a_setting_for_an_unknown_client_is_refused(home: Settings) -> None:
    settings = msgspec.structs.replace(home, clients={"codx": Path("/c")})

    with pytest.raises(InvalidSettings, match=r"clients\.codx: mica reads transcripts of claude-code, codex"):
        places_of(settings, Path("/ann"))


def test_a_folder_of_mixed_transcripts_is_sorted_by_client(home: Settings, tmp_path: Path, opencode_db: Path) -> None:
    folder = tmp_path / "mixed"
    folder.mkdir()
    for name in (
        "codex/rollout.jsonl",
        "gemini/session.jsonl",
        "copilot/events.jsonl",
        "claude-code/transcript-a.jsonl",
    ):
        shutil.copy(FIXTURES / name, folder)
    shutil.copy(opencode_db, folder / "opencode.db")
    (folder / "notes.jsonl").write_text('{"a": 1}\n')

    plans = plan_imports([TranscriptFolder(folder)], settings=home, into=tmp_path / "one.db")

    assert {name: found.transcripts for name, found in plans.clients.items()} == dict.fromkeys(
        ("claude-code", "codex", "copilot", "gemini", "opencode"), 1
    )
    assert plans.strange == [folder / "notes.jsonl"]
    assert plans.files == 5
    assert [plan.target for plan in plans.plans] == [tmp_path / "one.db"]
    assert plans.size_bytes == sum(found.size_bytes for found in plans.clients.values())


def test_a_transcript_belongs_to_the_space_of_its_directory(home: Settings, tmp_path: Path) -> None:
    """One whose directory is unknown, or is not on this machine, has a space too."""
    shop = tmp_path / "shop"
    shop.mkdir()
    rollout = (FIXTURES / "codex/rollout.jsonl").read_text()
    for number, cwd in enumerate(("/home/dev/shop", str(shop)), start=1):
        path = tmp_path / f"rollout-{number}.jsonl"
        path.write_text(rollout.replace("/home/dev/shop", cwd))
        os.utime(path, (number, number))

    plans = plan_imports([TranscriptFolder(tmp_path, "codex")], settings=home, into=None)

    newest, oldest = plans.plans
    assert newest.target == space_of(shop, home=home.home).file
    assert newest.roots == {tmp_path / "rollout-2.jsonl": shop}
    assert oldest.files == [tmp_path / "rollout-1.jsonl"]
    assert oldest.target != file_of("unknown", home=home.home)


def test_an_unreadable_file_is_reported_and_the_others_are_planned(home: Settings, tmp_path: Path) -> None:
    shutil.copy(FIXTURES / "codex/rollout.jsonl", tmp_path / "rollout-1.jsonl")
    os.mkfifo(tmp_path / "rollout-2.jsonl")

    plans = plan_imports([TranscriptFolder(tmp_path, "codex")], settings=home, into=None)

    assert plans.files == 1
    assert plans.unreadable == {str(tmp_path / "rollout-2.jsonl"): "not a regular file"}


def test_a_place_that_does_not_exist_has_no_transcripts(home: Settings, tmp_path: Path) -> None:
    assert plan_imports([TranscriptFolder(tmp_path / "none")], settings=home, into=None).plans == []
