"""Generate docs/cli.md from the commands; `--check` fails if it is not up to date."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import click

from mica.cli import cli

PAGE = Path(__file__).parent.parent / "docs" / "cli.md"
BEGINNING = """# Commands

Written by `scripts/cli_page.py` from the commands themselves. Results go to standard output, everything else to
standard error; `--json` prints one document. An error of ours is one line, `mica: …`, and exits 1; wrong usage exits 2.
"""


def commands(group: click.Group, path: str) -> Iterator[tuple[str, click.Command]]:
    for name, command in group.commands.items():
        yield f"{path} {name}", command
        if isinstance(command, click.Group):
            yield from commands(command, f"{path} {name}")


def section(path: str, command: click.Command) -> str:
    context = click.Context(command, info_name=path, terminal_width=100, max_content_width=100)
    return f"## {path}\n\n```text\n{command.get_help(context)}\n```\n"


def page() -> str:
    return "\n".join([BEGINNING, *(section(path, command) for path, command in commands(cli, "mica"))])


if "--check" in sys.argv:
    if PAGE.read_text(encoding="utf-8") != page():
        sys.exit("docs/cli.md is not current: run scripts/cli_page.py")
else:
    PAGE.write_text(page(), encoding="utf-8")
