"""The program as a whole: errors, JSON, Ctrl-C, pipes."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click import Command, Group
from tests.cli.terminal import FIXTURES, Terminal

import mica
from mica.cli import cli
from mica.testing.builders import build


def test_empty_results_say_what_to_do(terminal: Terminal) -> None:
    assert "No spaces yet" in terminal.run("upkeep", "spaces").stdout
    terminal.run("mark", "one")
    assert "Nothing found; try other words" in terminal.run("search", "nothing").stdout
    assert "No events match" in terminal.run("events", "query", "--session", "nosuch").stdout
    assert "No file " in terminal.run("navigate", "the unrelated task").stdout


EMPTY_ANSWERS = [
    ["search", "auth"],
    ["events", "tail"],
    ["events", "query", "--name", "x"],
    ["events", "names"],
    ["events", "failures"],
    ["events", "sessions"],
    ["events", "overview"],
    ["crystals", "list"],
    ["trails", "list"],
    ["navigate", "login"],
    ["doctor"],
]


@pytest.mark.parametrize("command", EMPTY_ANSWERS, ids=" ".join)
def test_a_directory_without_a_space_is_told_from_a_space_without_an_answer(
    terminal: Terminal, command: list[str]
) -> None:
    def shown() -> str:
        result = terminal.run(*command)
        assert result.exit_code == 0, result.output
        assert ":memory:" not in result.stdout
        assert "mica events tail" not in result.stdout
        return " ".join(result.stdout.replace("│", " ").split()).lower()

    begin = "there is no memory of this directory yet; `mica up` imports what agents did, `mica mark` records what"
    assert begin in shown()
    assert "--space name" not in shown()

    (terminal.home / "bakery").mkdir(parents=True)
    terminal.run("mark", "one", "--space", str(terminal.home / "bakery"))
    assert "--space name selects another space: bakery-" in shown()


def test_an_empty_space_is_said_to_be_empty(terminal: Terminal, tmp_path: Path) -> None:
    store = str(tmp_path / "empty.db")
    asyncio.run(make_empty(store))

    shown = terminal.run("events", "tail", "--store", store)

    assert shown.stdout.startswith("This space is empty; `mica up` imports what agents did")


async def make_empty(store: str) -> None:
    async with mica.open(store):
        pass


@pytest.mark.parametrize(
    "command",
    [
        ["search", "x"],
        ["navigate", "x"],
        ["events", "tail"],
        ["events", "query"],
        ["events", "failures"],
        ["events", "follow"],
        ["crystals", "list"],
        ["crystals", "stream"],
        ["trails", "list"],
        ["trails", "explore", "x"],
        ["trails", "learn", "commits"],
        ["sources", "warm"],
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("limit", ["0", "-1"])
def test_a_limit_below_one_is_refused(terminal: Terminal, command: list[str], limit: str) -> None:
    refused = terminal.run(*command, "-n", limit)

    assert refused.exit_code == 2, refused.output
    assert f"Invalid value for '--limit' / '-n': {limit} is not in the range 1<=x" in " ".join(refused.stderr.split())


def test_an_unknown_space_is_refused_with_how_one_is_made(terminal: Terminal) -> None:
    refused = terminal.run("mark", "hi", "--space", "brandnew")

    assert refused.exit_code == 1
    assert "with the first `mica mark` in it; --store FILE makes one in a file of your choice" in refused.stderr


def test_the_folder_of_a_store_is_not_created(terminal: Terminal, tmp_path: Path) -> None:
    """A mistyped path must not become a folder; only the data folder is created."""
    store = str(tmp_path / "nosuch" / "x.db")
    for command in (["mark", "hi"], ["import", "codex"], ["up", "--once"], ["search", "hi"]):
        for refused in (terminal.run(*command, "--store", store), terminal.run(*command, MICA_STORE=store)):
            assert refused.exit_code == 1
            assert f"the folder {tmp_path / 'nosuch'} does not exist; create it first" in refused.stderr
    assert not (tmp_path / "nosuch").exists()
    assert terminal.run("mark", "hi", MICA_HOME=str(tmp_path / "new" / "data")).exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["events", "show", "99"], "no event '99' in this space"),
        (["events", "show", build(1).id], "no event"),
        (["events", "show", "xyz"], "'xyz' is not an event id"),
        (["events", "query", "--text", "the"], "nothing to search for in 'the'"),
        (["search", "?!", "…"], "the query '?! …' has no word to search for"),
        (["search", "x", "--space", "nowhere"], "no space or directory is called 'nowhere'"),
        (["search", "x", "--store", "mysql://localhost/x"], "no store for the address"),
        (["import", "claude-code", "--store", "/proc/none/x.db", "."], "the folder /proc/none does not exist"),
    ],
)
def test_our_errors_are_one_line_and_exit_1(terminal: Terminal, arguments: list[str], message: str) -> None:
    (Path.cwd() / "t.jsonl").write_bytes(next(FIXTURES.glob("*transcript-a*")).read_bytes())
    result = terminal.run(*arguments)
    assert result.exit_code == 1, result.output
    assert result.stderr.startswith("mica: ")
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


def test_wrong_usage_exits_2(terminal: Terminal) -> None:
    for arguments in (
        ["search"],
        ["search", "", " "],
        ["brief", "--budget", "-5"],
        ["brief", "--budget", "0"],
        ["handoff", "--budget", "0"],
        ["sources", "gather", "service:app:login", "--budget", "0"],
        ["events", "query", "--since", "soon"],
        ["upkeep", "embed"],
        ["nope"],
    ):
        assert terminal.run(*arguments).exit_code == 2


def test_a_bad_settings_file_names_the_key(terminal: Terminal, tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text("[brief]\nbudget_tokens = 'many'\n")
    result = terminal.run("doctor", MICA_CONFIG=str(config))
    assert result.exit_code == 1
    assert "$.brief.budget_tokens" in result.stderr
    assert str(config) in result.stderr


def test_control_characters_do_not_reach_the_terminal(terminal: Terminal) -> None:
    terminal.run("mark", "esc \x1b[31mred\x07")
    for command in (["search", "esc"], ["events", "tail"], ["events", "overview"], ["brief", "esc"]):
        output = terminal.run(*command).stdout
        assert "red" in output
        assert "\x1b" not in output
        assert "\x07" not in output


def test_numbers_too_large_for_a_store_raise_no_traceback(terminal: Terminal) -> None:
    terminal.run("mark", "one")
    assert "no event" in terminal.run("events", "show", "9" * 30).stderr
    assert terminal.run("events", "tail", "-n", "9" * 30).exit_code == 2
    assert terminal.run("events", "query", "--text", " ".join(f"w{n}" for n in range(2_000))).exit_code == 0
    assert terminal.run("search", "x", "--store", "a", "--space", "b").exit_code == 2


def without_json(command: Command, name: str) -> Iterator[str]:
    if isinstance(command, Group):
        context = click.Context(command)
        for inner in command.list_commands(context):
            found = command.get_command(context, inner)
            assert found is not None
            yield from without_json(found, f"{name} {inner}".strip())
    elif not any(option.name == "as_json" for option in command.params):
        yield name


def test_every_command_takes_json_except_screens_and_protocols() -> None:
    """Every option in a command's help is accepted, as the README says."""
    assert sorted(without_json(cli, "")) == ["hook", "mcp", "server tui"]


def test_the_core_imports_nothing_heavy() -> None:
    """Imports cost start-up time: numpy, servers and models are loaded on first use."""
    heavy = (
        "numpy asyncpg starlette uvicorn prometheus_client mcp textual onnxruntime pydantic discord xllamacpp "
        "pytest hypothesis"
    ).split()
    script = f"import sys, mica; print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_python_m_mica_is_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "mica", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("mica 0.")


def test_a_closed_pipe_raises_no_traceback(terminal: Terminal, transcripts: Path) -> None:
    command = f"{sys.executable} -m mica up --once | head -1"
    done = subprocess.run(["bash", "-c", command], env=terminal.variables, capture_output=True, text=True, check=True)
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("how", ["signal.raise_signal(signal.SIGINT)", "del module"])
def test_ctrl_c_ends_a_command_with_one_line_at_any_point(how: str) -> None:
    """Python drops exceptions raised in its own callbacks, such as during imports; the signal still counts."""
    script = f"""if True:
        import signal, sys, time, weakref
        from mica.cli import cli, main

        class Module: ...

        @cli.command()
        def press() -> None:
            module = Module()
            callback = weakref.ref(module, lambda _: signal.raise_signal(signal.SIGINT))
            {how}
            time.sleep(60)

        sys.argv[1:] = ["press"]
        main()
    """
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout, done.stderr) == (130, "", "mica: stopped\n")


def test_ctrl_c_ends_a_command_with_one_line_while_modules_load() -> None:
    """Even during the last import there is no traceback and no second message."""
    script = """if True:
        import signal, sys
        from mica.cli import main

        hear = signal.signal

        def pressed(number, handler):
            hear(number, handler)
            signal.raise_signal(number)

        hear(signal.SIGINT, signal.SIG_DFL)
        signal.signal = pressed
        sys.argv[1:] = ["version"]
        main()
    """
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout, done.stderr) == (130, "", "mica: stopped\n")
