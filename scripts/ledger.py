"""Fill the last column of tests/requirements.md with the tests that prove each row (docstrings say `keeps: A-14`).

`--check` fails if the page is not up to date, or if a row is marked `kept` and no test names it.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "tests" / "requirements.md"
ID = re.compile(r"\b(?:T?[A-E]|[KUM])-\d{2}\b")
KEEPS = re.compile(rf"keeps: ({ID.pattern}(?:, {ID.pattern})*)")
ROW = re.compile(r"^\| (?P<id>(?:T?[A-E]|[KUM])-\d{2}) \| (?P<words>.*) \| (?P<state>[^|]*) \| (?P<tests>[^|]*) \|$")
TESTS_MAX = 3  # tests shown in a row, first those that name the fewest requirements; more would hide the row


def tests_by_id() -> dict[str, list[str]]:
    """Map each requirement to the tests whose docstrings name it, the most specific tests first."""
    found: dict[str, list[tuple[int, str]]] = defaultdict(list)
    contracts = sorted((ROOT / "src/mica/testing").rglob("*.py"))
    for path in [*sorted((ROOT / "tests").rglob("test_*.py")), *contracts]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                promises = KEEPS.search(ast.get_docstring(node) or "")
                names = ID.findall(promises[1]) if promises else []
                for name in names:
                    found[name].append((len(names), f"{path.relative_to(ROOT)}::{node.name}"))
    return {name: [test for _, test in sorted(named)] for name, named in found.items()}


def fill_row(line: str, tests: dict[str, list[str]]) -> str:
    """Return a table row with the tests of its requirement; any other line unchanged."""
    row = ROW.match(line)
    if row is None:
        return line
    named = ", ".join(f"`{test}`" for test in tests.get(row["id"], [])[:TESTS_MAX]) or "—"
    return f"| {row['id']} | {row['words']} | {row['state']} | {named} |"


def main() -> None:
    tests = tests_by_id()
    text = PAGE.read_text(encoding="utf-8")
    current = "\n".join(fill_row(line, tests) for line in text.split("\n"))
    rows = [row for line in current.split("\n") if (row := ROW.match(line))]
    unproven = [row["id"] for row in rows if row["state"] == "kept" and row["tests"] == "—"]
    unknown = sorted(set(tests) - {row["id"] for row in rows})
    if "--check" not in sys.argv:
        PAGE.write_text(current, encoding="utf-8")
    elif current != text:
        sys.exit("tests/requirements.md is not current: run scripts/ledger.py")
    if unproven or unknown:
        sys.exit(f"kept, but named by no test: {unproven}; named by a test, but not in the ledger: {unknown}")


main()
