"""Read a file of the working tree, and choose the lines of it that an agent should read first for a prompt.

A file is cut into blocks from one definition to the next, and blocks are ranked by the words of the prompt. Lines that
agents read for earlier prompts get no preference, because measurements show that agents rarely read the same lines next
(docs/navigation.md).
"""

from __future__ import annotations

import math
import posix
import re

from mica.tokens import about
from mica.words import term_of, words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    Span = tuple[int, int]  # the first line and the last


SIZE_BYTES_MAX = 1_000_000  # larger files are data, not text
READ_BYTES_MAX = 200_000  # read from the beginning, which shows what a file is about
SECRET_NAMES = frozenset(
    ".env .envrc .netrc _netrc .pgpass .my.cnf .npmrc .yarnrc.yml .pypirc .git-credentials .htpasswd .dockercfg"
    " id_rsa id_dsa id_ecdsa id_ed25519 credentials".split()
)

GIT = ".git"  # its files have the credentials of remotes; some file systems ignore the case

_FOLDER, _REGULAR, _KIND = 0o040000, 0o100000, 0o170000

BLOCK_LINES_MAX, WINDOW_LINES, BLOCK_LINES_MIN = 60, 40, 4
WHOLE_TOKENS = 500  # smaller files are offered without line ranges
BLOCKS_MAX = 3  # blocks of one file that are chosen
HEAD_WEIGHT, NAMED_WEIGHT, LINE_WEIGHT = 0.3, 1.0, 2.0

_DEFINITION = re.compile(
    r"^\s{0,8}(?:@[\w.]+\s+)?(?:export\s+|default\s+|public\s+|private\s+|protected\s+|static\s+|async\s+|abstract\s+"
    r"|pub(?:\([a-z]+\))?\s+|final\s+)*"
    r"(?:def|class|function\*?|func|fn|interface|type|enum|struct|trait|impl|module|namespace|const|let|var|object)\s+"
    r"(?:\([^)]*\)\s*)?([A-Za-z_$][\w$]*)"
)


def is_secret(path: str) -> bool:
    """True if a file with this path usually contains secrets, as `.env` does, or belongs to git.

    Such a file may be offered by name, but is never read.
    """
    name = path.rpartition("/")[2]
    return name in SECRET_NAMES or name.startswith(".env.") or (GIT in path.lower() and GIT in path.lower().split("/"))


def read_text(root: str, path: str) -> str | None:
    """Return the first READ_BYTES_MAX bytes of a text file as text. `path` is relative to the folder `root`.

    Return None if the file is missing, binary, secret, outside the root, or larger than SIZE_BYTES_MAX. Symbolic links
    are not followed, neither for the file nor for a folder below the root.
    """
    if is_secret(path):
        return None
    try:
        place = root
        *folders, name = path.split("/")
        for part in folders:
            place = f"{place}/{part}"
            if part in ("", ".", "..") or posix.lstat(place).st_mode & _KIND != _FOLDER:
                return None
        place = f"{place}/{name}"
        if name in ("", ".", "..") or posix.lstat(place).st_mode & _KIND != _REGULAR:
            return None
        file = posix.open(place, posix.O_RDONLY | posix.O_CLOEXEC | posix.O_NOFOLLOW | posix.O_NONBLOCK)
    except (OSError, ValueError):
        return None
    try:
        if posix.fstat(file).st_size > SIZE_BYTES_MAX:
            return None
        read = b""
        while len(read) < READ_BYTES_MAX and (more := posix.read(file, READ_BYTES_MAX - len(read))):
            read += more
    except OSError:
        return None
    finally:
        posix.close(file)
    return None if b"\0" in read[:8_000] else read.decode("utf-8", "replace")


def find_definitions(text: str) -> list[tuple[str, int]]:
    """Return the names that the source text of a file defines, with their line numbers, in order.

    Definitions are recognized line by line, with one pattern that fits common languages.
    """
    found = []
    for number, line in enumerate(text.split("\n"), start=1):
        if (match := _DEFINITION.match(line)) is not None:
            found.append((match[1], number))
    return found


def choose_lines(
    text: str, query_terms: Collection[str], *, named: Collection[str] = (), at: Sequence[Span] = ()
) -> tuple[tuple[Span, ...], int]:
    """Return a pair: the line ranges of a file to read first, in order, and the number of lines of the file.

    There are no ranges if the file is small enough to be read as a whole, or if no block matches. `query_terms` are the
    terms of the prompt, `named` the words of the prompt that may be symbols, and `at` the line ranges that the prompt
    mentions.
    """
    rows = text.split("\n")
    total = len(rows) - (rows[-1] == "")
    if about(text) <= WHOLE_TOKENS:
        return (), total
    defined = find_definitions(text)
    blocks = _cut_blocks(rows[:total], [line for _, line in defined])
    scored = _score_blocks(rows, blocks, set(query_terms), [line for name, line in defined if name in named], at)
    best = sorted(scored, key=lambda each: (-each[0], each[1]))[:BLOCKS_MAX]
    threshold = best[0][0] / 2 if best else 0.0
    chosen = sorted(block for score, block in best if score > HEAD_WEIGHT and score >= threshold)
    return tuple(_join(chosen)), total


def _cut_blocks(rows: Sequence[str], starts: Sequence[int]) -> list[Span]:
    edges = sorted({1, *starts})
    blocks: list[Span] = []
    for start, after in zip(edges, [*edges[1:], len(rows) + 1], strict=True):
        if blocks and after - start < BLOCK_LINES_MIN and after - blocks[-1][0] <= BLOCK_LINES_MAX:
            blocks[-1] = (blocks[-1][0], after - 1)
        elif after - start > BLOCK_LINES_MAX:
            blocks += [(line, min(line + WINDOW_LINES, after) - 1) for line in range(start, after, WINDOW_LINES)]
        elif after > start:
            blocks.append((start, after - 1))
    return blocks


def _score_blocks(
    rows: Sequence[str], blocks: Sequence[Span], query_terms: set[str], defined: Sequence[int], at: Sequence[Span]
) -> list[tuple[float, Span]]:
    known: dict[str, str] = {}  # by word: its term, or "" for a term that is not in the query
    counts = [_count_query_terms(rows[start - 1 : end], query_terms, known) for start, end in blocks]
    holding = {term: sum(term in each for each in counts) for term in query_terms}
    scored = []
    for (start, end), term_counts in zip(blocks, counts, strict=True):
        score = math.fsum(
            math.log(1 + (len(blocks) - holding[term] + 0.5) / (holding[term] + 0.5)) * count / (count + 1.2)
            for term, count in sorted(term_counts.items())
        )
        score += NAMED_WEIGHT * sum(start <= line <= end for line in defined)
        score += LINE_WEIGHT * sum(first <= end and last >= start for first, last in at)
        scored.append((score + HEAD_WEIGHT / (1 + start / 20), (start, end)))
    return scored


def _count_query_terms(rows: Sequence[str], query_terms: set[str], known: dict[str, str]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for word in words("\n".join(rows)):
        term = known.get(word)
        if term is None:
            stem = term_of(word)
            term = known[word] = stem if stem in query_terms else ""
        if term:
            counts[term] = counts.get(term, 0) + 1
    return counts


def _join(blocks: Sequence[Span]) -> list[Span]:
    joined: list[Span] = []
    for start, end in blocks:
        if joined and start <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined
