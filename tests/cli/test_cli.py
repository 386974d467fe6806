"""The program as a whole: errors, JSON, Ctrl-C, pipes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click import Command, Group
from tests.cli.terminal import FIXTURES, Terminal

from mica.cli import cli
from mica.testing.builders import build


def test_empty_results_say_what_to_do(terminal: Terminal) -> None:
    assert "Nothing found" in terminal.run("search", "nothing").stdout
    assert "No events match" in terminal.run("events", "tail").stdout
    assert "this space is empty" in terminal.run("doctor").stdout
    assert "No spaces yet" in Terminal(terminal.home / "other").run("upkeep", "spaces").stdout


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
        (["import", "claude-code", "--store", "/proc/none/x.db", "."], "cannot create the folder"),
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
        "numpy asyncpg starlette uvicorn mcp textual onnxruntime pydantic discord xllamacpp pytest hypothesis".split()
    )
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
