"""Anchors: a range is found at its current place, or not at all."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mica.errors import InvalidInput
from mica.navigation.anchors.alignment import lines_of
from mica.navigation.anchors.anchor import (
    AROUND,
    HASHED_MAX,
    Anchor,
    AnchorMatch,
    LostAnchor,
    anchor,
    content_hash,
    find,
)

SERVER = '''\
"""A server."""

import os


class Server:
    """Answers."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.open = False

    def start(self) -> None:
        if self.open:
            return
        self.open = True
        print("listening on", self.port)

    def stop(self) -> None:
        if not self.open:
            return
        self.open = False


def main() -> None:
    server = Server(8080)
    server.start()
'''
START = (13, 17)  # Server.start


def matched_lines(text: str, found: AnchorMatch | LostAnchor) -> list[str]:
    assert isinstance(found, AnchorMatch), found
    return lines_of(text)[found.start - 1 : found.end]


def test_a_range_is_found_where_it_was_when_nothing_changed() -> None:
    """keeps: TA-11. The match is exact."""
    assert find(anchor("server.py", SERVER, *START), SERVER) == AnchorMatch(start=13, end=17, how="exact", share=1.0)


def test_a_moved_symbol_is_found_by_its_name() -> None:
    """keeps: TA-11, K-06. Lines inserted above move a range; lines inserted into it belong to it."""
    anchored = anchor("server.py", SERVER, *START)
    text = SERVER.replace("import os\n", "import os\nimport sys\nimport time\n").replace(
        "        self.open = True\n        print", "        self.open = True\n        time.sleep(1)\n        print"
    )

    found = find(anchored, text)

    assert found == AnchorMatch(start=15, end=20, how="symbol", share=1.0)
    assert matched_lines(text, found)[0].strip() == "def start(self) -> None:"


def test_a_renamed_symbol_is_found_by_its_lines() -> None:
    """keeps: TA-11. The lines identify it without the name."""
    text = "# new\n" + SERVER.replace("def start(self)", "def listen(self)")

    found = find(anchor("server.py", SERVER, *START), text)

    assert isinstance(found, AnchorMatch)
    assert found.how == "lines"
    assert "listening on" in matched_lines(text, found)[-1]


def test_a_deleted_symbol_is_lost_with_its_name() -> None:
    """keeps: TA-11. No other lines are returned instead."""
    lines = SERVER.split("\n")
    text = "\n".join(lines[: START[0] - 1] + lines[START[1] + 1 :])

    assert find(anchor("server.py", SERVER, *START), text) == LostAnchor(reason="method Server.start is gone")


def test_a_symbol_with_the_same_name_and_other_lines_is_lost() -> None:
    """keeps: TA-11. The same name without the same lines is not a match."""
    lines = lines_of(SERVER)
    text = "\n".join([*lines[:12], "    def start(self, *, backlog: int) -> bool:", "        raise Gone", *lines[17:]])
    anchored = anchor("server.py", SERVER, 14, 17)

    assert isinstance(find(anchored, text), LostAnchor)


def test_lines_moved_out_of_a_symbol_are_found_in_their_new_place() -> None:
    """keeps: TA-11. A body that moved to another function is found there."""
    text = SERVER.replace(
        "    def start(self) -> None:\n",
        "    def start(self) -> None:\n        self._listen()\n\n    def _listen(self) -> None:\n",
    )
    anchored = anchor("server.py", SERVER, 14, 17)

    found = find(anchored, text)

    assert matched_lines(text, found) == lines_of(SERVER)[13:17]


def test_one_of_two_equal_blocks_is_not_guessed() -> None:
    """keeps: TA-11. A block that now occurs twice, with everything around it, is lost."""
    block = "".join(f"key_{number} = {number}\n" for number in range(40))
    anchored = anchor("settings.conf", block, 15, 20)
    text = "# first\n" + block + "# second\n" + block + "# third\n"

    assert find(anchored, text) == LostAnchor(reason="its lines occur in several places")


def test_equal_blocks_are_distinguished_by_the_lines_around_them() -> None:
    """keeps: TA-11. The lines around a block identify it."""
    block = "retries = 3\nwait = 5\n"
    text = "".join(f"[{name}]\n{block}" for name in ("mail", "queue", "cache"))
    anchored = anchor("settings.conf", text, 5, 6)
    later = "# all of them\n" + text + "[disk]\n" + block

    assert find(anchored, later) == AnchorMatch(start=6, end=7, how="lines", share=1.0)


def test_a_range_at_the_end_is_not_confused_with_a_new_end_that_looks_alike() -> None:
    """keeps: TA-11. A new last function that ends with the same lines is not the range."""
    text = "def a(x):\n    if x:\n        return 1\n    return None\n"
    later = text + "\n\ndef b(y):\n    if y:\n        return 2\n    return None\n"
    anchored = anchor("notes.txt", text, 4, 4)

    assert find(anchored, "\n" + later) in (
        AnchorMatch(start=5, end=5, how="lines", share=1.0),
        LostAnchor(reason="its lines occur in several places"),
    )


def test_overloads_are_distinguished_by_their_lines() -> None:
    """keeps: TA-11. Symbols of the same name are compared, and the best match must be clearly better."""
    text = "class A {\n  int f(int a) {\n    return alpha(a);\n  }\n  int f(long b) {\n    return beta(b);\n  }\n}\n"
    anchored = anchor("A.java", text, 5, 7)
    later = text.replace("class A {\n", "class A {\n  int f() {\n    return gamma();\n  }\n\n")

    found = find(anchored, later)

    assert matched_lines(later, found) == ["  int f(long b) {", "    return beta(b);", "  }"]


def test_one_of_two_equal_symbols_is_not_guessed() -> None:
    """keeps: TA-11. A name that occurs twice with the same lines is ambiguous."""
    text = "def f(a):\n    one(a)\n    two(a)\n\n\n" * 2
    anchored = anchor("a.py", text, 6, 8)

    assert find(anchored, "# head\n" + text + "# tail\n") == LostAnchor(reason="its lines occur in several places")


def test_a_reindented_block_with_other_line_ends_is_the_same_block() -> None:
    """keeps: TA-11. Lines are compared without leading and trailing space, so a formatter does not lose a range."""
    text = "\r\n".join(f"  {line}" for line in SERVER.split("\n"))

    found = find(anchor("server.txt", SERVER, *START), text)

    assert found == AnchorMatch(start=13, end=17, how="exact", share=1.0)


def test_a_whole_file_stays_a_whole_file_until_it_is_rewritten() -> None:
    """keeps: A-08, TA-11. The range of a whole file grows with it."""
    anchored = anchor("server.py", SERVER, 1, 27)

    assert anchored.whole
    assert find(anchored, SERVER).how == "exact"  # type: ignore[union-attr]  # a lost anchor fails here
    assert find(anchored, SERVER + "\n\nmain()\n") == AnchorMatch(start=1, end=30, how="file", share=1.0)
    assert isinstance(find(anchored, "something else altogether\n"), LostAnchor)
    assert isinstance(find(anchored, ""), LostAnchor)


def test_an_anchor_contains_references_and_no_text() -> None:
    """keeps: K-02, K-06. The stored anchor contains no text of the file."""
    anchored = anchor("server.py", SERVER, *START)
    stored = msgspec.json.encode(anchored)

    assert msgspec.json.decode(stored, type=Anchor) == anchored
    assert b"listening" not in stored
    assert b"self" not in stored
    assert (anchored.symbol, anchored.kind, anchored.symbol_start, anchored.symbol_end) == (
        "Server.start",
        "method",
        13,
        17,
    )


def test_an_anchor_has_the_same_content_hash_as_a_step() -> None:
    """keeps: K-02. A content hash shows whether a range is unchanged."""
    assert anchor("server.py", SERVER, 3, 4).content_hash == content_hash(["import os", ""])


def test_long_ranges_are_remembered_in_part() -> None:
    """keeps: A-40. The size of an anchor is bounded, and the range is still found."""
    lines = [f"row {number}" for number in range(30_000)]
    anchored = anchor("data.txt", "\n".join(lines), 101, 29_000)

    later = ["new"] * 7 + lines + ["end"]
    found = find(anchored, "\n".join(later))

    assert len(anchored.hashes) <= 4 * HASHED_MAX
    assert found == AnchorMatch(start=108, end=29_007, how="lines", share=1.0)


@pytest.mark.parametrize(("start", "end"), [(0, 1), (3, 2), (1, 28), (-4, 3)])
def test_missing_lines_cannot_be_anchored(start: int, end: int) -> None:
    with pytest.raises(InvalidInput, match="has 27 lines"):
        anchor("server.py", SERVER, start, end)


# -- Laws -----------------------------------------------------------------------------------------------

words = st.text("abcdefghij", min_size=1, max_size=4)
distinct = st.lists(words, min_size=6, max_size=60, unique=True)
common = st.lists(st.sampled_from(["a", "b", "", "}", "end", "return"]), min_size=3, max_size=60)
PATHS = st.sampled_from(["file.txt", "file.py", "file.go", "file.md"])


@st.composite
def ranged(draw: st.DrawFn, lines: st.SearchStrategy[list[str]]) -> tuple[list[str], int, int]:
    drawn = draw(lines)
    start = draw(st.integers(1, len(drawn)))
    return drawn, start, draw(st.integers(start, len(drawn)))


@given(PATHS, ranged(distinct), st.data())
def test_insertions_elsewhere_never_lose_a_range(
    path: str, drawn: tuple[list[str], int, int], data: st.DataObject
) -> None:
    """keeps: TA-11. A block of distinct lines is found exactly after any insertions before and after it."""
    lines, start, end = drawn
    assume((start, end) != (1, len(lines)))
    anchored = anchor(path, "\n".join(lines), start, end)
    new = st.lists(st.sampled_from(["new", "", "}", "# other"]), max_size=90)
    before, after = data.draw(new), data.draw(new)
    above = data.draw(st.integers(0, start - 1))
    below = data.draw(st.integers(end, len(lines)))
    text = "\n".join([*lines[:above], *before, *lines[above:below], *after, *lines[below:]])

    found = find(anchored, text)

    assert isinstance(found, AnchorMatch)
    assert (found.start, found.end) == (start + len(before), end + len(before))
    assert found.share == 1


@given(PATHS, ranged(distinct), st.data())
def test_a_deleted_block_is_lost(path: str, drawn: tuple[list[str], int, int], data: st.DataObject) -> None:
    """keeps: TA-11. No other range is returned for a deleted block, even if other lines replace it."""
    lines, start, end = drawn
    assume((start, end) != (1, len(lines)))
    anchored = anchor(path, "\n".join(lines), start, end)
    instead = data.draw(st.lists(st.sampled_from(["NEW", "OTHER", "", "}"]), max_size=20))

    assert isinstance(find(anchored, "\n".join([*lines[: start - 1], *instead, *lines[end:]])), LostAnchor)


@given(PATHS, ranged(common), st.lists(st.sampled_from(["a", "b", "", "}", "end", "x", "y"]), max_size=60))
def test_a_match_contains_the_share_of_lines_that_it_reports(
    path: str, drawn: tuple[list[str], int, int], now: list[str]
) -> None:
    """keeps: TA-11. At least the reported share of its lines is in the match."""
    lines, start, end = drawn
    anchored = anchor(path, "\n".join(lines) + "\n", start, end)
    total = len(lines_of("\n".join(lines) + "\n"))
    assume(anchored.total == total)
    text = "\n".join(now)

    found = find(anchored, text)

    if isinstance(found, AnchorMatch):
        present = set(lines_of(text)[found.start - 1 : found.end])
        distinctive = [line for line in lines[start - 1 : end] if line.strip(" }")]
        assert 1 <= found.start <= found.end <= len(lines_of(text))
        assert sum(line in present for line in distinctive) >= found.share * len(distinctive) - 1e-9


@given(ranged(st.lists(words, min_size=1, max_size=40)), st.lists(words, max_size=40))
def test_finding_is_the_same_each_time(drawn: tuple[list[str], int, int], now: list[str]) -> None:
    lines, start, end = drawn
    anchored = anchor("a.py", "\n".join(lines), start, end)

    assert find(anchored, "\n".join(now)) == find(anchored, "\n".join(now))
    assert anchored.lead <= AROUND
