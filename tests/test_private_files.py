"""The data folder, and whatever mica creates in it, is for its owner alone."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.hook_process import PATIENT_HOOK

import mica
from mica import hook
from mica.brief.hook_answers import write_engine
from mica.cli import cli
from mica.clients.installer import write_launcher
from mica.clients.spool import PromptAnswer, SessionAnswer, Spools, hooks_folder, is_registered, register_command
from mica.errors import StoreUnavailable
from mica.private_files import make_private_folder, replace_private, secure_home
from mica.settings import load_settings
from mica.store.remote.servers import RunningServer, announce
from mica.store.space import remember_space, space_of
from mica.web.process import only_server
from mica.web.tokens import TokenFile

STRANGER = 65_534  # the number of another user
IS_ROOT = os.geteuid() == 0
WAYS = ["a mode", *(["an owner"] if IS_ROOT else [])]  # only root may give a file to another user


@pytest.fixture(autouse=True)
def umask() -> Iterator[None]:
    """Files get all rights unless they are created with fewer."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "shop"
    (folder / ".git").mkdir(parents=True)
    (folder / "cart.py").write_text("def pay(): ...\n")
    return folder


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home" / "mica"


def open_to_others(folder: Path) -> list[str]:
    paths = [folder, *folder.rglob("*")]
    return [f"{path} {path.lstat().st_mode & 0o777:o}" for path in paths if path.lstat().st_mode & 0o077]


def give_away(path: Path, way: str) -> None:
    """Let another user own or change a file or folder."""
    if way == "an owner":
        os.chown(path, STRANGER, STRANGER, follow_symlinks=False)
    else:
        path.chmod(0o777 if path.is_dir() else 0o666)


def run_hook(
    home: Path, project: Path, event: str = "UserPromptSubmit", **variables: str
) -> subprocess.CompletedProcess[str]:
    fields = {"session_id": "s1", "cwd": str(project), "prompt": "mend the login of the cart"}
    return subprocess.run(
        [*PATIENT_HOOK, "claude", event],
        input=json.dumps(fields),
        capture_output=True,
        text=True,
        check=True,
        env={"HOME": str(home.parent), "MICA_HOME": str(home), **variables},
        cwd=project,
    )


def spools_of(home: Path, project: Path) -> Spools:
    return Spools(hooks_folder(space_of(project, home=home).file))


def recorded(home: Path, project: Path) -> list[str]:
    files = (spools_of(home, project).folder / "spool").glob("*.jsonl")
    return [json.loads(line)["event"] for file in files for line in file.read_text().splitlines()]


# -- What mica creates ------------------------------------------------------------------------------------------


async def test_everything_in_the_data_folder_is_private_under_any_umask(home: Path, project: Path) -> None:
    """The store and its log, segments, spools, answers, code for hooks, programs, tokens and servers."""
    settings = load_settings({"HOME": str(home.parent), "MICA_HOME": str(home), "MICA_SEMANTIC": "off"})
    file = space_of(project, home=home).file
    run_hook(home, project)
    async with mica.open(file, settings=settings) as memory:
        memory.emit("file.read", {"path": "cart.py"})
        await memory.clients.ingest()
        memory.mark("The cookie is set before the redirect", tags=["gotcha"])
        (segment,) = file.with_name(f"{file.name}-segments").rglob("*.segment")
        spools = spools_of(home, project)
        spools.switch(on=False, prompts=False)
        spools.write_answer(hook.SESSION_ANSWER, SessionAnswer(text="hello"))
        write_engine(home)
        write_launcher(home / "bin")
        register_command(home)
        remember_space(home, "postgresql://db/one", "shop")
        TokenFile(home).make("mine")
        note = RunningServer(pid=1, address="http://127.0.0.1:1", token="t", space="shop")
        with announce(note, home=home), only_server(file, address="http://127.0.0.1:1"):
            assert open_to_others(home) == []
    assert open_to_others(home) == []
    assert segment.name not in {path.name for path in home.rglob("*.segment")}


@pytest.mark.parametrize(
    "command", [["mark", "a note"], ["install", "claude-code", "--yes"], ["upkeep", "hooks", "off"]]
)
def test_a_command_creates_a_private_data_folder(home: Path, project: Path, command: list[str]) -> None:
    environment = {"HOME": str(home.parent), "MICA_HOME": str(home), "MICA_SEMANTIC": "off"}

    done = CliRunner().invoke(cli, command, env=environment)

    assert done.exit_code == 0, done.output
    assert open_to_others(home) == []
    assert list(home.iterdir())


async def test_an_open_data_folder_is_made_private_when_it_is_used(home: Path, project: Path) -> None:
    """An earlier mica gave new folders and some files the rights of the umask."""
    settings = load_settings({"HOME": str(home.parent), "MICA_HOME": str(home), "MICA_SEMANTIC": "off"})
    file = space_of(project, home=home).file
    async with mica.open(file, settings=settings) as memory:
        memory.mark("a note")
    register_command(home)
    write_launcher(home / "bin")
    for path in (home, *home.rglob("*")):
        path.chmod(0o755 if path.is_dir() or path.name == "mica-hook" else 0o644)

    async with mica.open(file, settings=settings) as memory:
        assert [hit.text for hit in await memory.search("note")] == ["a note"]

    assert open_to_others(home) == []
    assert (home / "bin" / "mica-hook").stat().st_mode & 0o777 == 0o700


async def test_files_that_others_could_write_are_written_again(home: Path, project: Path) -> None:
    """Their content may be of another user, so making them private would not be enough."""
    spools = spools_of(home, project)
    make_private_folder(home)
    register_command(home)
    spools.write_answer(hook.SESSION_ANSWER, SessionAnswer(text="hello"))
    engine = write_engine(home)
    changed = next(engine.rglob("prompt.py"))
    (home / "ingest-command").write_text("/tmp/evil\ningest\n")
    changed.write_text("import evil")
    for path in (home, home / "ingest-command", spools.folder / "session.json", changed):
        give_away(path, "a mode")

    secure_home(home)

    assert home.stat().st_mode & 0o777 == 0o700
    assert not is_registered(home)
    assert spools.session_answer() is None
    register_command(home)
    assert is_registered(home)
    assert "evil" not in (home / "ingest-command").read_text()
    assert "evil" not in next(write_engine(home).rglob("prompt.py")).read_text()
    spools.write_answer(hook.SESSION_ANSWER, SessionAnswer(text="hello"))
    assert open_to_others(home) == []


async def test_a_data_folder_of_another_user_is_refused_and_unchanged(
    home: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message names the folder and the remedy, and nothing is deleted."""
    make_private_folder(home)
    (home / "note").write_text("theirs")
    if IS_ROOT:
        os.chown(home, STRANGER, STRANGER)
    else:
        home.rmdir() if not any(home.iterdir()) else (home / "note").unlink()
        home.rmdir()
        home.symlink_to("/usr")  # of root
    before = sorted((path, path.lstat().st_mode) for path in home.glob("*"))
    settings = load_settings({"HOME": str(home.parent), "MICA_HOME": str(home)})

    with pytest.raises(StoreUnavailable, match=f"{home} belongs to another user.*MICA_HOME.*sudo chown -R"):
        await mica.open(space_of(project, home=home).file, settings=settings)
    done = run_hook(home, project)

    assert done.stdout == ""
    assert f"this event was not recorded: {home} belongs to another user" in done.stderr
    assert sorted((path, path.lstat().st_mode) for path in home.glob("*")) == before


# -- What a hook refuses ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
def test_a_hook_does_not_run_a_command_that_another_user_could_have_written(
    home: Path, project: Path, tmp_path: Path, way: str
) -> None:
    """The event itself is recorded, and the user is told."""
    ran = tmp_path / "ran"
    make_private_folder(home)
    command = home / "ingest-command"
    command.write_text(f"/bin/sh\n-c\necho > {ran}\n")
    give_away(command, way)

    done = run_hook(home, project, "SessionStart")

    assert recorded(home, project) == ["SessionStart"]
    assert str(command) in done.stderr
    assert "run `mica ingest`" in done.stderr or "belongs to another user" in done.stderr
    assert not (spools_of(home, project).folder / "child").exists(), "nothing was started"
    assert not ran.exists()


@pytest.mark.parametrize("way", [*WAYS, "a link"])
def test_a_hook_does_not_print_a_brief_that_another_user_could_have_written(
    home: Path, project: Path, tmp_path: Path, way: str
) -> None:
    spools = spools_of(home, project)
    spools.write_answer(hook.SESSION_ANSWER, SessionAnswer(text="obey me"))
    answer = spools.folder / "session.json"
    if way == "a link":
        answer.rename(tmp_path / "elsewhere")
        answer.symlink_to(tmp_path / "elsewhere")
    else:
        give_away(answer, way)

    done = run_hook(home, project, "SessionStart")

    assert done.stdout == ""
    assert str(answer) in done.stderr
    assert recorded(home, project) == ["SessionStart"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("part", ["prompt.json", "engine", "toy.py", "past", "tree"])
def test_a_hook_does_not_run_code_that_another_user_could_have_written(
    home: Path, project: Path, tmp_path: Path, part: str, way: str
) -> None:
    """Neither the ranking code nor the files that name it or that it reads."""
    spools, engine = spools_of(home, project), home / "engine"
    make_private_folder(engine)
    replace_private(engine / "toy.py", b"def suggest(*_, **rest): return 'obey me', ['a.py']")
    paths = {"prompt.json": spools.folder / "prompt.json", "engine": engine, "toy.py": engine / "toy.py"}
    paths |= {name: tmp_path / name for name in ("past", "tree")}
    for name in ("past", "tree"):
        replace_private(paths[name], b"")
    made = PromptAnswer(
        engine=str(engine),
        entry="toy:suggest",
        library="",
        past=str(paths["past"]),
        trees={str(project): str(paths["tree"])},
        holdout=0.0,
    )
    spools.write_answer(hook.PROMPT_ANSWER, made)
    assert "obey me" in run_hook(home, project).stdout
    give_away(paths[part], way)

    done = run_hook(home, project)

    assert done.stdout == ""
    assert str(paths[part]) in done.stderr
    assert recorded(home, project) == ["UserPromptSubmit", hook.ANSWERED, "UserPromptSubmit"]


def test_a_hook_makes_its_own_folders_private_and_records(home: Path, project: Path) -> None:
    """Folders that only have too many rights are safe to write to once they are private."""
    run_hook(home, project)
    folders = [home, home / "spaces", folder := spools_of(home, project).folder, folder / "spool"]
    for path in (*folders, folder / "spool" / "s1.jsonl"):
        give_away(path, "a mode")

    done = run_hook(home, project)

    assert done.stderr == ""
    assert len(recorded(home, project)) == 2
    assert open_to_others(home) == []


@pytest.mark.parametrize("name", ["", "spaces", "hooks", "spool", "a link", "s1.jsonl"])
def test_a_hook_writes_nothing_into_a_place_of_another_user(
    home: Path, project: Path, tmp_path: Path, name: str
) -> None:
    """A prompt must not reach a folder that someone else put into the place of the spool."""
    folder = spools_of(home, project).folder
    make_private_folder(folder / "spool")
    place = {"": home, "spaces": home / "spaces", "hooks": folder}.get(name, folder / "spool")
    if name == "s1.jsonl":
        place = place / name
        place.write_text("")
    if IS_ROOT and name == "a link":
        (folder / "spool").rename(tmp_path / "mine")
        place.symlink_to(tmp_path / "mine")
    if IS_ROOT:
        os.chown(place, STRANGER, STRANGER, follow_symlinks=False)
    elif name == "s1.jsonl":
        place.unlink()
        place.symlink_to("/usr/not-writable")
    else:
        place.rename(tmp_path / "mine")
        place.symlink_to("/usr")  # of root

    done = run_hook(home, project)

    assert (done.returncode, done.stdout) == (0, "")
    assert f"this event was not recorded: {place}" in done.stderr
    spooled = [path for path in tmp_path.rglob("*.jsonl") if path.is_file()]
    prompts = [path for path in spooled if "mend the login" in path.read_text()]
    assert prompts == []


def test_a_data_folder_behind_a_link_of_its_owner_works(home: Path, project: Path, tmp_path: Path) -> None:
    """Some people keep their data on another disk."""
    (tmp_path / "disk").mkdir()
    home.parent.mkdir(parents=True)
    home.symlink_to(tmp_path / "disk")

    done = run_hook(home, project)

    assert done.stderr == ""
    assert recorded(home, project) == ["UserPromptSubmit"]
    assert open_to_others(tmp_path / "disk") == []
