"""Are line ranges found again after the code has changed, and is a wrong range ever offered?

    python bench/anchors.py                             # over the history of this repository
    python bench/anchors.py --repo PATH                 # of any other
    python bench/anchors.py --quick                     # fewer ranges

Ranges are drawn at old commits (whole symbols, parts of symbols, any windows) from files that changed between then and
a later commit, and searched for there. The reference is git: the diffs of all commits in between show which line
became which. Surviving lines should be offered; lines from elsewhere are wrong. A line that git calls new is
wrong too if nothing of the range survived and the range did not contain its text. Baselines: unchanged line numbers,
difflib on both whole texts (which needs the old one), and anchors without symbols. The last line of the output is
one JSON object.
"""

from __future__ import annotations

import difflib
import random
import re
import subprocess
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from _events import SEED
from _table import argument_parser, check, finish, machine, show
from mica.navigation.anchors.alignment import lines_of
from mica.navigation.anchors.anchor import Anchor, AnchorMatch, anchor, find
from mica.navigation.anchors.symbols import find_symbols, method_for

COMMITS_MAX = 2_000  # the newest of the first-parent line
DISTANCES = 1, 3, 10, 30, 100, 300
DIFFLIB_LINES_MAX = 3_000  # difflib takes quadratic time
FILE_BYTES_MAX = 500_000
DATA = (".json", ".jsonl", ".lock", ".svg", ".csv", ".min.js", ".txt")  # not read by range
WRONG_MAX = 0.5  # percent of the lines offered; more ends the run with an error

Range = tuple[int, int]
_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")


class Change(NamedTuple):
    """A change of a file in a commit: its name before and after (None if absent), and its hunks."""

    before: str | None
    after: str | None
    hunks: tuple[tuple[int, int, int, int], ...]


class DrawnRange(NamedTuple):
    """A range at an old commit, and the history of its file according to git."""

    kind: str
    path: str
    then: str
    start: int
    end: int
    later_path: str | None
    later: str  # empty if the file was removed
    origins: Sequence[int | None]  # the original of each later line; None for a new one


class Score(NamedTuple):
    survived: int = 0
    covered: int = 0
    offered: int = 0
    wrong: int = 0
    ranges: int = 0
    lost: int = 0  # ranges of which half or more survived, and nothing was offered
    gone: int = 0  # ranges of which nothing survived
    invented: int = 0  # of these, ranges for which something was offered

    def __add__(self, other: object) -> Score:
        assert isinstance(other, Score)
        return Score(*(one + two for one, two in zip(self, other, strict=True)))


# -- git --------------------------------------------------------------------------------------------------


def git(repo: Path, *arguments: str) -> str:
    command = ["git", "-C", str(repo), "--no-optional-locks", *arguments]
    ran = subprocess.run(command, capture_output=True, check=False)
    if ran.returncode:
        raise SystemExit(f"git cannot read {repo}: {ran.stderr.decode('utf-8', 'replace').strip()}")
    return ran.stdout.decode("utf-8", "replace")


def history(repo: Path) -> list[tuple[str, list[Change]]]:
    """Read the commits of the first-parent line, oldest first, each with its changes."""
    text = git(
        repo, "-c", "core.quotePath=false", "log", "--first-parent", "--diff-merges=first-parent", "--reverse", "-p",
        "-U0", "-M", "--no-color", "--no-ext-diff", "--no-textconv", "--src-prefix=a/", "--dst-prefix=b/",
        f"--max-count={COMMITS_MAX}", "--format=%x00%H",
    )  # fmt: skip
    return [(commit[:40], list(changes(commit))) for commit in text.split("\0")[1:]]


def changes(commit: str) -> Iterator[Change]:
    """Parse the changes in one commit of `git log -p -U0`."""
    for part in commit.split("\ndiff --git ")[1:]:
        before = after = None
        hunks: list[tuple[int, int, int, int]] = []
        for line in part.split("\n"):
            if match := _HUNK.match(line):
                hunks.append((int(match[1]), int(match[2] or 1), int(match[3]), int(match[4] or 1)))
            elif not hunks and line.startswith(("--- a/", "rename from ")):
                before = line.split("/", 1)[1] if line.startswith("---") else line.removeprefix("rename from ")
            elif not hunks and line.startswith(("+++ b/", "rename to ")):
                after = line.split("/", 1)[1] if line.startswith("+++") else line.removeprefix("rename to ")
        yield Change(before and before.rstrip("\t"), after and after.rstrip("\t"), tuple(hunks))


class Blobs:
    """Reads files at commits through one `git cat-file` process, with a cache."""

    def __init__(self, repo: Path) -> None:
        command = ["git", "-C", str(repo), "cat-file", "--batch"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._known: dict[tuple[str, str], str | None] = {}

    def text(self, commit: str, path: str) -> str | None:
        """Read the text of a file. None if it is missing, binary or large."""
        if (commit, path) not in self._known:
            self._known[commit, path] = None if "\n" in path else self._read(f"{commit}:{path}")
        return self._known[commit, path]

    def _read(self, name: str) -> str | None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(name.encode() + b"\n")
        self._process.stdin.flush()
        header = self._process.stdout.readline().split()
        if header[-1:] == [b"missing"] or len(header) != 3:
            return None
        content = self._process.stdout.read(int(header[2]) + 1)[:-1]
        if header[1] != b"blob" or len(content) > FILE_BYTES_MAX or b"\0" in content:
            return None
        return content.decode("utf-8", "replace")

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()


def carry_origins(origins: Sequence[int | None], hunks: Sequence[tuple[int, int, int, int]]) -> list[int | None]:
    """Return the original number of each line after one more commit; None for a line that the commit adds."""
    later: list[int | None] = []
    at = 0
    for old, old_count, _, new_count in hunks:
        first = old - 1 if old_count else old  # an insertion names the line it follows
        later += origins[at:first]
        later += [None] * new_count
        at = first + old_count
    later += origins[at:]
    return later


# -- Ranges -----------------------------------------------------------------------------------------------


def draw_range(
    commits: Sequence[tuple[str, list[Change]]], blobs: Blobs, distance: int, dice: random.Random
) -> DrawnRange | None:
    """Choose a random range of a file that changes in the next `distance` commits. None if the attempt fails."""
    first = dice.randrange(len(commits) - distance)
    between = commits[first + 1 : first + 1 + distance]
    names: dict[str, str] = {}  # the current name of each file, and its name at the first commit
    touched: set[str] = set()
    for _, changed in between:
        for change in changed:
            if change.before is not None:
                was = names.pop(change.before, change.before)
                touched.add(was)
                if change.after is not None:
                    names[change.after] = was
    candidates = sorted(path for path in touched if not path.endswith(DATA))
    if not candidates:
        return None
    path = dice.choice(candidates)
    then = blobs.text(commits[first][0], path)
    if then is None or not then.strip():
        return None
    ranged = pick_range(path, then, dice)
    later_path, origins = track_lines(path, len(lines_of(then)), between)
    later = blobs.text(between[-1][0], later_path) if later_path is not None else ""
    if ranged is None or later is None:
        return None
    check(len(origins) == len(lines_of(later)), f"the diffs of {path} add up to the file at {between[-1][0]}")
    kind, start, end = ranged
    return DrawnRange(kind, path, then, start, end, later_path, later, origins)


def track_lines(
    path: str, total: int, commits: Sequence[tuple[str, list[Change]]]
) -> tuple[str | None, Sequence[int | None]]:
    """Follow a file through commits: its last name, None if it was removed, and the origin of each line."""
    name: str | None = path
    origins: Sequence[int | None] = range(1, total + 1)
    for _, changed in commits:
        change = next((change for change in changed if name is not None and change.before == name), None)
        if change is not None:
            name, origins = change.after, carry_origins(origins, change.hunks)
    return name, origins if name is not None else ()


def pick_range(path: str, text: str, dice: random.Random) -> tuple[str, int, int] | None:
    """Choose a whole symbol, a part of one, or any window; never the whole file."""
    total = len(lines_of(text))
    if total < 5:
        return None
    kind = dice.choice(("symbol", "part", "window"))
    if kind == "window":
        start = dice.randint(1, total - 1)
        end = min(total, start + dice.choice((0, 2, 9, 29, 79)))
    else:
        found = [
            symbol for symbol in find_symbols(path, text) if symbol.end - symbol.start >= (2 if kind == "symbol" else 4)
        ]
        if not found:
            return None
        symbol = dice.choice(found)
        start, end = symbol.start, symbol.end
        if kind == "part":
            start = dice.randint(symbol.start + 1, symbol.end - 1)
            end = dice.randint(start, symbol.end - 1)
    return None if (start, end) == (1, total) else (kind, start, end)


# -- Ways to find it again ----------------------------------------------------------------------------------


def by_anchor(one: DrawnRange) -> Range | None:
    return _locate(anchor(one.path, one.then, one.start, one.end), one.later)


def by_anchor_without_symbols(one: DrawnRange) -> Range | None:
    made = anchor(one.path, one.then, one.start, one.end)
    return _locate(msgspec.structs.replace(made, symbol=None, symbol_start=None, symbol_end=None), one.later)


def _locate(made: Anchor, later: str) -> Range | None:
    found = find(made, later)
    return (found.start, found.end) if isinstance(found, AnchorMatch) else None


def by_number(one: DrawnRange) -> Range | None:
    total = len(one.origins)
    return (one.start, min(one.end, total)) if one.start <= total else None


def by_difflib(one: DrawnRange) -> Range | None:
    then, later = lines_of(one.then), lines_of(one.later)
    blocks = difflib.SequenceMatcher(None, then, later, autojunk=False).get_matching_blocks()
    matching = [
        line + block.b - block.a + 1
        for block in blocks
        for line in range(max(block.a, one.start - 1), min(block.a + block.size, one.end))
    ]
    return (matching[0], matching[-1]) if matching else None


WAYS: dict[str, Callable[[DrawnRange], Range | None]] = {
    "anchors": by_anchor,
    "without symbols": by_anchor_without_symbols,
    "difflib": by_difflib,
    "line numbers": by_number,
}


def score_range(one: DrawnRange, offered: Range | None) -> Score:
    """Compare an offered range with the lines that survived according to git."""
    inner = range(one.start, one.end + 1)
    places = [number for number, origin in enumerate(one.origins, start=1) if origin in inner]
    lines = range(offered[0], offered[1] + 1) if offered and one.later_path else range(0)
    elsewhere = sum((origin := one.origins[line - 1]) is not None and origin not in inner for line in lines)
    if not places:
        texts = {line.strip() for line in lines_of(one.then)[one.start - 1 : one.end]}
        later = lines_of(one.later)
        elsewhere = sum(later[line - 1].strip() not in texts for line in lines)
    return Score(
        survived=len(places),
        covered=sum(place in lines for place in places),
        offered=len(lines),
        wrong=elsewhere,
        ranges=1,
        lost=bool(not lines and len(places) * 2 >= len(inner)),
        gone=not places,
        invented=bool(not places and elsewhere),
    )


# -- Tables -----------------------------------------------------------------------------------------------


def percent(part: int, whole: int) -> float:
    return 100 * part / whole if whole else 0.0


def row(name: str, score: Score) -> list[str]:
    return [
        name,
        f"{score.ranges:,}",
        f"{percent(score.covered, score.survived):.1f}",
        f"{percent(score.wrong, score.offered):.2f}",
        f"{percent(score.lost, score.ranges - score.gone):.1f}",
        f"{score.invented} of {score.gone}",
    ]


COLUMNS = "", "ranges", "covered %", "wrong %", "lost %", "offered of gone"


def main() -> None:
    parser = argument_parser(__doc__, quick="fewer ranges")
    parser.add_argument("--repo", type=Path, default=Path(__file__).resolve().parent.parent, help="whose history")
    parser.add_argument("--ranges", type=int, help="ranges for each distance")
    parser.add_argument("--seed", type=int, default=SEED)
    arguments = parser.parse_args()
    repo: Path = arguments.repo
    ranges = arguments.ranges or (60 if arguments.quick else 600)

    shallow = git(repo, "rev-parse", "--is-shallow-repository").strip() == "true"
    commits = history(repo)
    if len(commits) < 2:
        raise SystemExit(
            f"{repo} has {len(commits)} commits here, and a range needs two; fetch the history: git fetch --unshallow"
        )
    print(machine())
    note = " (a shallow clone: only these are here)" if shallow else ""
    print(f"{len(commits):,} commits of the first-parent line{note}; Python is read by {method_for('a.py')}")

    blobs, dice = Blobs(repo), random.Random(arguments.seed)
    by_way: dict[str, Score] = defaultdict(Score)
    by_distance: dict[tuple[int, str], Score] = defaultdict(Score)
    by_kind: dict[tuple[str, str], Score] = defaultdict(Score)
    suffixes: Counter[str] = Counter()
    try:
        for distance in DISTANCES:
            if distance >= len(commits):
                continue
            count = 0
            for _ in range(ranges * 10):
                if count == ranges:
                    break
                one = draw_range(commits, blobs, distance, dice)
                if one is None or max(len(lines_of(one.then)), len(one.origins)) > DIFFLIB_LINES_MAX:
                    continue
                count += 1
                suffixes[Path(one.path).suffix] += 1
                for way, look in WAYS.items():
                    score = score_range(one, look(one) if one.later_path else None)
                    by_way[way] += score
                    by_distance[distance, way] += score
                    by_kind[one.kind, way] += score
    finally:
        blobs.close()
    check(bool(by_way), "some file changed between two commits")

    print("files: " + ", ".join(f"{suffix or 'no suffix'} {count}" for suffix, count in suffixes.most_common(8)))
    show(
        "Ranges of files that changed: surviving lines that are offered, and wrong ones among what is offered",
        COLUMNS,
        [row(way, score) for way, score in by_way.items()],
    )
    for way in ("anchors", "line numbers"):
        show(
            f"By commits in between: {way}",
            COLUMNS,
            [row(f"{distance:,}", score) for (distance, name), score in by_distance.items() if name == way],
        )
    show(
        "By kind of range: anchors",
        COLUMNS,
        [row(kind, score) for (kind, name), score in sorted(by_kind.items()) if name == "anchors"],
    )

    anchors, numbers, rival = by_way["anchors"], by_way["line numbers"], by_way["difflib"]
    wrong = percent(anchors.wrong, anchors.offered)
    finish(
        {
            "anchored": percent(anchors.covered, anchors.survived),
            "kept_lines": percent(numbers.covered, numbers.survived),
            "difflib": percent(rival.covered, rival.survived),
            "without_symbols": percent(by_way["without symbols"].covered, anchors.survived),
            "wrong": wrong,
            "kept_wrong": percent(numbers.wrong, numbers.offered),
            "difflib_wrong": percent(rival.wrong, rival.offered),
            "lost": percent(anchors.lost, anchors.ranges - anchors.gone),
            "gone": anchors.gone,
            "invented": anchors.invented,
            "ranges": anchors.ranges,
            "commits": len(commits),
        }
    )
    check(wrong <= WRONG_MAX, f"at most {WRONG_MAX} % of the lines offered are wrong, and {wrong:.2f} % are")


if __name__ == "__main__":
    main()
