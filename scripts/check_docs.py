"""Check that the documents agree with the code: links, commands, the nav, no local paths. Exits 1 if not."""

import re
import shlex
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from itertools import dropwhile, groupby
from pathlib import Path, PurePath

import click

from mica.cli import cli

FENCE = re.compile(r"^ *(`{3,}|~{3,}) *(\w*)[^\n]*\n(.*?)^ *\1[`~]*$", re.MULTILINE | re.DOTALL)
CODE_SPAN = re.compile(r"(`+).+?\1", re.DOTALL)
LINK = re.compile(r"\]\(<?([^()\s>]+)>?(?:\s+\"[^\"]*\")?\)|^ {0,3}\[[^\]]+\]:\s+<?([^\s>]+)", re.MULTILINE)
HEADING = re.compile(r"^#{1,6} +(.+?) *#*$", re.MULTILINE)
URL_SCHEME = re.compile(r"[a-zA-Z][\w+.-]*:")
PRIVATE_PATH = re.compile(r"(?<![\w.~/])/(?:root|home|Users|work|workspace)(?:/[\w.-]+)*")
SHELLS = {"console", "sh", "shell", "bash"}
SKIPPED = {"node_modules", "build", "dist"}


def documents(root: Path) -> list[Path]:
    """Every Markdown file under root, except in hidden folders and builds."""
    inside = [(path, path.relative_to(root).parts) for path in root.rglob("*.md")]
    return sorted(path for path, parts in inside if not any(p.startswith(".") or p in SKIPPED for p in parts))


def anchors(text: str) -> set[str]:
    """The anchors of the headings in a text, in GitHub's spelling."""
    titles = (title.replace("`", "") for title in HEADING.findall(FENCE.sub("", text)))
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def broken_links(document: Path, text: str) -> Iterator[str]:
    """Links to missing files or headings."""
    prose = CODE_SPAN.sub("", FENCE.sub("", text))
    for target in (inline or reference for inline, reference in LINK.findall(prose)):
        if URL_SCHEME.match(target):
            continue
        path, _, fragment = target.partition("#")
        linked = document.parent / path if path else document
        if not linked.exists():
            yield f"the link {target!r} points nowhere"
        elif fragment and linked.suffix == ".md" and fragment not in anchors(linked.read_text("utf-8")):
            yield f"the link {target!r} names a heading that is not there"


def words_of(line: str) -> list[str]:
    """The line as a shell would split it; an unfinished quotation is split at spaces."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    try:
        return list(lexer)
    except ValueError:
        return line.split()


def mica_commands(text: str) -> Iterator[list[str]]:
    """The arguments of every `mica` command in a shell block; output below a `$` prompt is skipped."""
    for _, language, block in FENCE.findall(text):
        lines = block.replace("\\\n", " ").splitlines() if language in SHELLS else []
        typed = [line.strip()[1:] for line in lines if line.strip().startswith("$ ")]
        for line in typed if typed or language == "console" else lines:
            for operator, command in groupby(words_of(line), key=lambda word: set(word) <= set("();<>|&")):
                words = list(dropwhile(re.compile(r"\w+=").match, command))
                if not operator and words and PurePath(words[0]).name == "mica":
                    yield words[1:]


def misuse(command: click.Command, words: list[str]) -> str | None:
    """The unknown subcommand or option in `mica WORDS…`; None if there is none."""
    context = click.Context(command, info_name=command.name)
    try:
        _, rest, _ = command.make_parser(context).parse_args(list(words))
    except click.UsageError as error:
        return error.format_message()
    if not isinstance(command, click.Group) or not rest:
        return None
    subcommand = command.get_command(context, rest[0])
    return misuse(subcommand, rest[1:]) if subcommand else f"there is no command {rest[0]!r}"


def subcommands(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    """Every visible command below this one, with its full name."""
    if isinstance(command, click.Group):
        context = click.Context(command, info_name=name)
        for word in command.list_commands(context):
            child = command.get_command(context, word)
            if child and not child.hidden:
                yield f"{name} {word}", child
                yield from subcommands(child, f"{name} {word}")


def pages_of(nav: object) -> Iterator[str]:
    """Every page in a nav."""
    if isinstance(nav, str):
        yield nav
    for inner in nav.values() if isinstance(nav, dict) else nav if isinstance(nav, list) else ():
        yield from pages_of(inner)


def misplaced(root: Path) -> Iterator[str]:
    """One line for each page that is not exactly once in the nav of the site."""
    site = tomllib.loads((root / "zensical.toml").read_text("utf-8"))
    listed = Counter(pages_of(site["project"]["nav"]))
    there = {page.relative_to(root / "docs").as_posix() for page in (root / "docs").rglob("*.md")}
    yield from (f"zensical.toml: {page!r} is in the nav {count} times" for page, count in listed.items() if count > 1)
    yield from (f"zensical.toml: {page!r} is in the nav, and there is no such page" for page in {*listed} - there)
    yield from (f"zensical.toml: {page!r} is not in the nav: nobody finds it on the site" for page in there - {*listed})


def problems(root: Path, commands: click.Group) -> Iterator[str]:
    """One line for each problem under root, with the file name."""
    for document in documents(root):
        name, text = document.relative_to(root), document.read_text("utf-8")
        found = list(broken_links(document, text))
        found += [f"{path!r} is a path of one machine" for path in PRIVATE_PATH.findall(text)]
        if name == PurePath("README.md") or name.parts[0] == "docs":
            typed = [(shlex.join(words), misuse(commands, words)) for words in mica_commands(text)]
            found += [f"`mica {words}`: {wrong}" for words, wrong in typed if wrong]
        yield from (f"{name}: {problem}" for problem in found)

    yield from misplaced(root)
    manual = root / "docs" / "cli.md"
    described = manual.read_text("utf-8") if manual.exists() else ""
    for call, command in subcommands(commands, "mica"):
        if not command.help:
            yield f"{call}: has no help text"
        elif not isinstance(command, click.Group) and "Example" not in command.help:
            yield f"{call}: its help shows no Example"
        if not re.search(rf"\b{re.escape(call)}\b", described):
            yield f"{call}: is not in docs/cli.md"


if __name__ == "__main__":
    sys.exit("\n".join(problems(Path(__file__).parent.parent, cli)) or None)
