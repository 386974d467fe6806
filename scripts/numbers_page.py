"""Generate docs/numbers.md from docs/numbers.json, the recorded results of the benchmarks.

`record bench/start.py --quick` runs a benchmark and stores its result. `--check` fails if the page is not up to date.
Both fail for a script that bench/README.md does not list.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).parent.parent
LINES = ROOT / "docs" / "numbers.json"
PAGE = ROOT / "docs" / "numbers.md"
BENCHMARKS = ROOT / "bench" / "README.md"

HEAD = """# Numbers

What was measured, and the command that measures it. This page is generated from `docs/numbers.json`, the last lines
that the scripts printed (`scripts/numbers_page.py record bench/start.py --quick`), and a check keeps the two the
same. Machines differ and are busy: compare figures of one run with each other, above all the ratios.
`bench/README.md` explains what each script measures and what it compares with.
"""

Figures = dict[str, object]
Line = dict[str, object]


def read_explanations() -> dict[str, tuple[str, dict[str, str]]]:
    """Read the question of each script and the meanings of its figures from bench/README.md."""
    questions: dict[str, str] = {}
    meanings: dict[str, dict[str, str]] = {}
    script = ""
    for row in BENCHMARKS.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in row.strip("|").split(" | ")]
        if not row.startswith("|") or len(cells) != 3:
            continue
        first, second, third = cells
        named = re.fullmatch(r"`(\w+\.py)`", first)
        if named and not second.startswith("`"):
            questions[named[1]] = second
            continue
        script = named[1] if named else script
        for name in [*re.findall(r"`(\w+)`", second), *re.findall(r"`(\w+)`", third)]:
            meanings.setdefault(script, {}).setdefault(name, third)
    return {name: (question, meanings.get(name, {})) for name, question in questions.items()}


def load_results() -> dict[str, Line]:
    found: dict[str, Line] = json.loads(LINES.read_text(encoding="utf-8")) if LINES.is_file() else {}
    return found


def page(lines: dict[str, Line]) -> str:
    """Render the page for these results. Raises KeyError for a script that bench/README.md does not list."""
    known = read_explanations()
    parts = [HEAD]
    for script, line in sorted(lines.items()):
        question, meanings = known[script]
        figures = line["figures"]
        assert isinstance(figures, dict)
        rows = [
            f"| `{name}` | {_value(value)} | {_meaning(name, meanings)} |"
            for name, value in figures.items()
            if not isinstance(value, str | list | dict)
        ]
        origin = f"`{line['command']}`, {line['at']}, {line['machine']}."
        parts.append(
            f"\n## {script.removesuffix('.py')}\n\n{question}\n\n{origin}\n\n"
            "| figure | value | means |\n| --- | ---: | --- |\n" + "\n".join(rows) + "\n"
        )
    return "".join(parts)


def record(words: list[str]) -> None:
    """Run a benchmark and record its result in place of the previous one. A failed run is not recorded."""
    script = Path(words[0])
    done = subprocess.run([sys.executable, *words], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    busy = f"{os.getloadavg()[0]:.1f} processes waiting for them"
    figures: Figures = json.loads(done.stdout.strip().splitlines()[-1])
    lines = load_results()
    lines[script.name] = {
        "command": " ".join([".venv/bin/python", *words]),
        "at": f"{datetime.now(UTC):%Y-%m-%d}",
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, {busy}",
        "figures": figures,
    }
    LINES.write_text(json.dumps(dict(sorted(lines.items())), indent=2) + "\n", encoding="utf-8")


def _value(value: object) -> str:
    return f"{value:,.4g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)


def _meaning(name: str, meanings: dict[str, str]) -> str:
    """Return the meaning of a figure: from its own row, or from the row whose name is its longest prefix or suffix."""
    near = [each for each in meanings if name.startswith(f"{each}_") or name.endswith(f"_{each}")]
    return meanings.get(name) or meanings.get(max(near, key=len, default=""), "")


def main() -> None:
    if sys.argv[1:2] == ["record"]:
        record(sys.argv[2:])
    made = page(load_results())
    if "--check" in sys.argv:
        if PAGE.read_text(encoding="utf-8") != made:
            sys.exit("docs/numbers.md is not up to date with docs/numbers.json: run scripts/numbers_page.py")
        return
    PAGE.write_text(made, encoding="utf-8")


main()
