"""The examples in README and docs run, and print what they say."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import io
import re
import runpy
import subprocess
import sys
from codeop import CommandCompiler
from collections.abc import Iterator
from pathlib import Path
from types import CodeType

import pytest
from tests.web.server import WebServer

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SERVER = "http://127.0.0.1:6422"  # where `mica up` serves on a reader's machine
EXAMPLE = re.compile(r"```python\n(?P<code>.*?)```\n(?:\n```text\n(?P<output>.*?)```)?", re.DOTALL)
IN_ONE_SESSION = ROOT / "docs" / "tours" / "python.md"  # its blocks are pasted one after the other


def examples(page: Path) -> Iterator[tuple[int, str, str | None]]:
    """The line, code and output of every example of a page."""
    text = page.read_text(encoding="utf-8")
    found = [
        (text[: match.start()].count("\n") + 1, match["code"], match["output"]) for match in EXAMPLE.finditer(text)
    ]
    if page != IN_ONE_SESSION:
        yield from found
    elif found:
        yield found[0][0], "".join(code for _, code, _ in found), "".join(output or "" for *_, output in found)


EXAMPLES = [
    pytest.param(code, output, id=f"{page.name}:{line}") for page in PAGES for line, code, output in examples(page)
]


def statements(code: str) -> Iterator[CodeType]:
    """The statements that a Python prompt runs when these lines are pasted: a blank line ends a block."""
    compiler = CommandCompiler()
    compiler.compiler.flags |= ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    lines: list[str] = []
    for line in [*code.splitlines(), ""]:
        lines.append(line)
        if (statement := compiler("\n".join(lines), "example", "single")) is not None:
            yield statement
            lines = []
    assert not any(lines), f"an unfinished statement: {lines}"


def run(code: str) -> str:
    """Paste code into a prompt that allows `await`; returns what it prints, without the echo of values."""

    async def paste() -> None:
        names: dict[str, object] = {"__name__": "__main__"}
        for statement in statements(code):
            result = eval(statement, names)  # the example itself, from our own pages
            if inspect.iscoroutine(result):
                await result

    printed = io.StringIO()
    echo, sys.displayhook = sys.displayhook, lambda value: None
    try:
        with contextlib.redirect_stdout(printed):
            asyncio.run(paste())
    finally:
        sys.displayhook = echo
    return printed.getvalue()


@pytest.mark.parametrize(("code", "output"), EXAMPLES)
def test_an_example_prints_what_the_page_says(
    code: str, output: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    if SERVER in code:
        server: WebServer = request.getfixturevalue("web_server")
        code = code.replace(SERVER, server.base)
        monkeypatch.setenv("MICA_TOKEN", server.token)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("MICA_BRIEF_DEADLINE_S", "10")  # a busy machine must not change the answer
    printed = run(code)
    if output is not None:
        pattern = ".*?".join(re.escape(part) for part in output.split("…"))
        assert re.fullmatch(pattern, printed), printed


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 3


def test_a_blank_line_inside_a_block_is_noticed() -> None:
    assert run("for n in (1, 2):\n    print(n)\n\nprint(3)\n") == "1\n2\n3\n"
    with pytest.raises(IndentationError):
        run("for n in (1, 2):\n    print(n)\n\n    print(3)\n")
    with pytest.raises(SyntaxError):
        run("for n in (1, 2):\n    print(n)\nprint(3)\n")


def test_every_page_is_listed_in_the_site_once(tmp_path: Path) -> None:
    """`make check` reports pages that are unreachable, listed twice or missing."""
    misplaced = runpy.run_path(str(ROOT / "scripts" / "check_docs.py"))["misplaced"]
    (tmp_path / "docs").mkdir()
    for name in ("index", "lost", "doubled"):
        (tmp_path / "docs" / f"{name}.md").write_text("# A page\n", encoding="utf-8")
    nav = '[project]\nnav = [{ "A" = "index.md" }, { "B" = ["doubled.md", { "C" = "doubled.md" }] }, "gone.md"]\n'
    (tmp_path / "zensical.toml").write_text(nav, encoding="utf-8")

    assert sorted(misplaced(tmp_path)) == [
        "zensical.toml: 'doubled.md' is in the nav 2 times",
        "zensical.toml: 'gone.md' is in the nav, and there is no such page",
        "zensical.toml: 'lost.md' is not in the nav, so no reader finds it on the site",
    ]
    assert list(misplaced(ROOT)) == []


def test_the_numbers_page_matches_the_benchmark_output(tmp_path: Path) -> None:
    """keeps: E-16, U-13. A figure that was not measured or was edited by hand fails the check."""
    copied = tmp_path / "mica"
    for name in ("scripts/numbers_page.py", "docs/numbers.json", "docs/numbers.md", "bench/README.md"):
        (copied / name).parent.mkdir(parents=True, exist_ok=True)
        (copied / name).write_text((ROOT / name).read_text(encoding="utf-8"), encoding="utf-8")
    check = [sys.executable, str(copied / "scripts" / "numbers_page.py"), "--check"]

    assert subprocess.run(check, check=False).returncode == 0
    page = copied / "docs" / "numbers.md"
    page.write_text(re.sub(r"\| ([\d.,]+) \|", "| 1 |", page.read_text(encoding="utf-8"), count=1), encoding="utf-8")
    assert subprocess.run(check, check=False, stderr=subprocess.DEVNULL).returncode == 1


def test_a_module_with_io_that_is_no_listed_edge_is_noticed(tmp_path: Path) -> None:
    """`make check` keeps the table of edges in ARCHITECTURE.md true."""
    check_docs = runpy.run_path(str(ROOT / "scripts" / "check_docs.py"))
    source = tmp_path / "src" / "mica"
    modules = {
        "store/disk.py": "from pathlib import Path\nPath('x').read_text()\n",
        "model/quiet.py": "import subprocess\n",
        "model/pure.py": "x = 'a'.replace('a', 'b')\n",
        "cli/shown.py": "import socket\n",
    }
    for name, code in modules.items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(code, encoding="utf-8")
    table = "| edge | modules |\n| --- | --- |\n| disk | `store/{disk}.py` |\n\n"
    (tmp_path / "ARCHITECTURE.md").write_text(table, encoding="utf-8")

    assert list(check_docs["hidden_edges"](tmp_path)) == [
        "ARCHITECTURE.md: model/quiet.py does I/O and is not in the table of edges"
    ]
    assert list(check_docs["hidden_edges"](ROOT)) == []
