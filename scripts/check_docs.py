"""Check that the documents agree with the code. Prints one line for each problem, and exits 1 if there is one.

It checks links, commands, the navigation of the site, and the table of modules that do I/O. It also finds paths that
exist only on one machine.
"""

import ast
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
from mica.cli.groups import ListingGroup

FENCE = re.compile(r"^ *(`{3,}|~{3,}) *(\w*)[^\n]*\n(.*?)^ *\1[`~]*$", re.MULTILINE | re.DOTALL)
CODE_SPAN = re.compile(r"(`+).+?\1", re.DOTALL)
LINK = re.compile(r"\]\(<?([^()\s>]+)>?(?:\s+\"[^\"]*\")?\)|^ {0,3}\[[^\]]+\]:\s+<?([^\s>]+)", re.MULTILINE)
HEADING = re.compile(r"^#{1,6} +(.+?) *#*$", re.MULTILINE)
URL_SCHEME = re.compile(r"[a-zA-Z][\w+.-]*:")
PRIVATE_PATH = re.compile(r"(?<![\w.~/])/(?:root|home|Users|work|workspace)(?:/[\w.-]+)*")
SHELLS = {"console", "sh", "shell", "bash"}
SKIPPED = {"node_modules", "build", "dist"}
# A module that imports or calls one of these does I/O itself, and ARCHITECTURE.md lists it as an edge.
IO_IMPORTS = {
    *("apsw", "asyncpg", "concurrent.futures", "fcntl", "httpx2", "mmap", "shutil", "socket", "sqlite3", "subprocess"),
    "tempfile",
}
IO_CALLS = {
    *("cwd", "exists", "fsync", "fdatasync", "glob", "is_dir", "is_file", "iterdir", "mkdir", "open", "read_bytes"),
    *("read_text", "rglob", "rmdir", "scandir", "stat", "symlink_to", "Thread", "unlink", "write_bytes", "write_text"),
}
SURFACES = {"cli", "mcp", "web", "tui", "discord", "testing"}
EDGE_TABLE = re.compile(r"^\| edge \| modules \|\n(.*?)\n(?:\n|\Z)", re.MULTILINE | re.DOTALL)


def documents(root: Path) -> list[Path]:
    """Return every Markdown file under root, except in hidden folders and builds."""
    inside = [(path, path.relative_to(root).parts) for path in root.rglob("*.md")]
    return sorted(path for path, parts in inside if not any(p.startswith(".") or p in SKIPPED for p in parts))


def anchors(text: str) -> set[str]:
    """Return the anchors of the headings in a text, as GitHub spells them."""
    titles = (title.replace("`", "") for title in HEADING.findall(FENCE.sub("", text)))
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def broken_links(document: Path, text: str) -> Iterator[str]:
    """Yield one sentence for each link to a missing file or heading."""
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
    """Split a line as a shell does, or at spaces if a quotation in it is not closed."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    try:
        return list(lexer)
    except ValueError:
        return line.split()


def mica_commands(text: str) -> Iterator[list[str]]:
    """Yield the arguments of every `mica` command in a shell block; output below a `$` prompt is skipped."""
    for _, language, block in FENCE.findall(text):
        lines = block.replace("\\\n", " ").splitlines() if language in SHELLS else []
        typed = [line.strip()[1:] for line in lines if line.strip().startswith("$ ")]
        for line in typed if typed or language == "console" else lines:
            for operator, command in groupby(words_of(line), key=lambda word: set(word) <= set("();<>|&")):
                words = list(dropwhile(re.compile(r"\w+=").match, command))
                if not operator and words and PurePath(words[0]).name == "mica":
                    yield words[1:]


def misuse(command: click.Command, words: list[str]) -> str | None:
    """Describe the unknown subcommand or option in `mica WORDS…`. None if all of them exist."""
    context = click.Context(command, info_name=command.name)
    if isinstance(command, ListingGroup):
        words = command.with_command(context, words)
    try:
        _, rest, _ = command.make_parser(context).parse_args(list(words))
    except click.UsageError as error:
        return error.format_message()
    if not isinstance(command, click.Group) or not rest:
        return None
    subcommand = command.get_command(context, rest[0])
    return misuse(subcommand, rest[1:]) if subcommand else f"there is no command {rest[0]!r}"


def subcommands(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    """Yield every visible command below this one, with its full name."""
    if isinstance(command, click.Group):
        context = click.Context(command, info_name=name)
        for word in command.list_commands(context):
            child = command.get_command(context, word)
            if child and not child.hidden:
                yield f"{name} {word}", child
                yield from subcommands(child, f"{name} {word}")


def pages_of(nav: object) -> Iterator[str]:
    """Yield every page in a navigation tree."""
    if isinstance(nav, str):
        yield nav
    for inner in nav.values() if isinstance(nav, dict) else nav if isinstance(nav, list) else ():
        yield from pages_of(inner)


def misplaced(root: Path) -> Iterator[str]:
    """Yield one line for each page that the site's navigation lacks, lists twice, or lists without a file."""
    site = tomllib.loads((root / "zensical.toml").read_text("utf-8"))
    listed = Counter(pages_of(site["project"]["nav"]))
    existing = {page.relative_to(root / "docs").as_posix() for page in (root / "docs").rglob("*.md")}
    yield from (f"zensical.toml: {page!r} is in the nav {count} times" for page, count in listed.items() if count > 1)
    yield from (f"zensical.toml: {page!r} is in the nav, and there is no such page" for page in {*listed} - existing)
    unlisted = existing - {*listed}
    yield from (f"zensical.toml: {page!r} is not in the nav, so no reader finds it on the site" for page in unlisted)


def does_io(path: Path) -> bool:
    """Return True if a module does I/O itself, judged by its imports and calls."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        match node:
            case ast.Import(names=names) if any(each.name in IO_IMPORTS for each in names):
                return True
            case ast.ImportFrom(module=str(module)) if module in IO_IMPORTS:
                return True
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name in IO_CALLS:
                return True
    return False


def listed_edges(root: Path, source: Path) -> set[Path]:
    """Return the modules in the table of edges (modules that do I/O) in ARCHITECTURE.md."""
    table = EDGE_TABLE.search((root / "ARCHITECTURE.md").read_text("utf-8"))
    listed: set[Path] = set()
    for name in re.findall(r"`([^`]+)`", table[1] if table else ""):
        before, brace, rest = name.replace("<agent>", "*").partition("{")
        inner, _, after = rest.partition("}")
        for path in [f"{before}{each}{after}" for each in inner.split(",")] if brace else [before]:
            found = list(source.glob(f"{path}**/*.py" if path.endswith("/") else path))
            if not found:
                raise FileNotFoundError(f"ARCHITECTURE.md names the edge {path!r}, and there is no such module")
            listed.update(found)
    return listed


def hidden_edges(root: Path) -> Iterator[str]:
    """Yield one line for each module that does I/O but is not in the table of edges; surfaces need not be in it."""
    source = root / "src" / "mica"
    listed = listed_edges(root, source)
    for path in sorted(source.rglob("*.py")):
        name = path.relative_to(source)
        if name.parts[0] not in SURFACES and name.name != "memory.py" and path not in listed and does_io(path):
            yield f"ARCHITECTURE.md: {name} does I/O and is not in the table of edges"


def problems(root: Path, commands: click.Group) -> Iterator[str]:
    """Yield one line for each problem under root, with the file name."""
    for document in documents(root):
        name, text = document.relative_to(root), document.read_text("utf-8")
        found = list(broken_links(document, text))
        found += [f"{path!r} is a path of one machine" for path in PRIVATE_PATH.findall(text)]
        if name == PurePath("README.md") or name.parts[0] == "docs":
            typed = [(shlex.join(words), misuse(commands, words)) for words in mica_commands(text)]
            found += [f"`mica {words}`: {wrong}" for words, wrong in typed if wrong]
        yield from (f"{name}: {problem}" for problem in found)

    yield from misplaced(root)
    yield from hidden_edges(root)
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
