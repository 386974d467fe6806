"""How many secrets are found, how much other text is spoiled, and how fast?

    python bench/redact.py

`tests/secret_corpus.py` makes secrets of 130 vendors in some fifty surroundings, and text that only looks like secrets.
A secret is found if no useful part of it is left. For `recall_left_out`, the rules of a row's own vendor are left out:
so are the keys of a vendor found that mica has never heard of. The speed is that of the documentation and the source of
mica itself, beside a scan of the same texts for one word with a regular expression, which finds nothing. Lines made to
be slow are searched at two lengths. The last line of the output is one JSON object.
"""

from __future__ import annotations

import re
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

from _table import argument_parser, check, finish, machine, show
from mica.redact import Rules, redact

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tests.secret_corpus import Secret, leaks, look_alikes, secrets  # noqa: E402 - beside the tests

ROUNDS, ROUNDS_QUICK = 4, 1  # of the corpus, each with other random parts
TIMED_ROUNDS = 3
CONTEXTS = frozenset({"password", "pem", "header"})  # no vendors: nothing can be left out
HOSTILE_CHARACTERS, HOSTILE_QUICK = 1_000_000, 200_000
HOSTILE = (
    *("a", "a ", "password=", "password is ", "token: a1b2c3 ", "key ", "eyJ-", "sk-", "ghp_", "AKIA", "://a:", "\\n"),
    *("\x1b[31m", "%41", "\u200b", "&quot;", "aB3dE6gH9jK2mN5pQ8sT_", "x|password|y\n", "-----BEGIN PRIVATE KEY-----"),
    *("aB3dE6gH9jK2mN5pQ8sT1vW4yZ7aB3dE6gH9jK2mN5pQ8sT1vW4yZ7\n", "mysql -p", "seed phrase word ", "<password>"),
)
GROWTH_MAX = 3.0  # twice the text takes twice the time; more is noise, or no longer linear


def found(rows: Sequence[Secret], redacted: Callable[[Secret], str]) -> tuple[Counter[str], Counter[str]]:
    """Return how many rows there are in each frame, and how many of their secrets are found."""
    every, whole = Counter[str](), Counter[str]()
    for row in rows:
        every[row.frame] += 1
        whole[row.frame] += not leaks(redacted(row), row.secret)
    return every, whole


def left_out(rows: Sequence[Secret]) -> tuple[Counter[str], Counter[str]]:
    by_vendor: dict[str, list[Secret]] = defaultdict(list)
    for row in rows:
        if row.vendor not in CONTEXTS:
            by_vendor[row.vendor].append(row)
    every, whole = Counter[str](), Counter[str]()
    for vendor, own in by_vendor.items():
        rules = Rules(without=frozenset({vendor}))
        some, right = found(own, lambda row, rules=rules: rules.redact(row.text))  # type: ignore[misc] # bound at once
        every += some
        whole += right
    return every, whole


def plain_texts() -> list[str]:
    files = sorted([*ROOT.glob("docs/*.md"), *ROOT.glob("src/mica/crystals/*.py"), *ROOT.glob("src/mica/brief/*.py")])
    return [part for file in files for part in file.read_text(encoding="utf-8").split("\n\n") if part.strip()]


def seconds(call: Callable[[], object]) -> float:
    """Return the CPU seconds of the fastest of a few calls."""
    times = []
    for _ in range(TIMED_ROUNDS):
        began = time.process_time()
        call()
        times.append(time.process_time() - began)
    return min(times)


def growth(unit: str, characters: int) -> tuple[float, float]:
    """Return a pair: CPU seconds for a hostile line, and how many times those of half the line."""
    half, whole = (unit * (length // len(unit)) for length in (characters // 2, characters))
    took = []
    for text in (half, whole):
        began = time.process_time()
        redact(text)
        took.append(time.process_time() - began)
    return took[1], took[1] / max(took[0], 0.005)


def main() -> None:
    options = argument_parser(__doc__, quick="one round of the corpus, and shorter hostile lines").parse_args()
    rounds = ROUNDS_QUICK if options.quick else ROUNDS
    characters = HOSTILE_QUICK if options.quick else HOSTILE_CHARACTERS
    print(machine())
    rows = [row for number in range(rounds) for row in secrets(seed=17 + number)]
    others = list(look_alikes(rounds=6 * rounds))
    every, whole = found(rows, lambda row: redact(row.text))
    every_left, whole_left = left_out(rows)
    unchanged = sum(redact(text) == text for _, text in others)
    show(
        "Secrets found, in per cent",
        ("frame", "rows", "found", "vendor left out"),
        [
            (
                frame,
                str(count),
                f"{100 * whole[frame] / count:.1f}",
                f"{100 * whole_left[frame] / every_left[frame]:.1f}" if every_left[frame] else "",
            )
            for frame, count in every.items()
        ],
    )
    texts = plain_texts()
    size = sum(map(len, texts))
    scan = re.compile("correct horse battery staple").search
    scanned = seconds(lambda: [scan(text) for text in texts])
    redacted = seconds(lambda: [redact(text) for text in texts])
    slow = {unit: growth(unit, characters) for unit in HOSTILE}
    show(
        f"Hostile lines of {characters:,} characters",
        ("unit", "seconds", "times half of it"),
        [(repr(unit)[:40], f"{took:.2f}", f"{times:.1f}") for unit, (took, times) in slow.items()],
    )
    check(max(times for _, times in slow.values()) <= GROWTH_MAX, "hostile lines take linear time")
    finish(
        {
            "recall": round(100 * whole.total() / every.total(), 2),
            "recall_left_out": round(100 * whole_left.total() / every_left.total(), 2),
            "precision": round(100 * unchanged / len(others), 2),
            "secrets": every.total(),
            "look_alikes": len(others),
            "mb_s": round(size / redacted / 1e6, 2),
            "vs_scan": round(redacted / scanned, 1),
            "us_text": round(redacted / len(texts) * 1e6, 1),
            "growth": round(max(times for _, times in slow.values()), 2),
            "hostile_s": round(max(took for took, _ in slow.values()), 2),
        }
    )


if __name__ == "__main__":
    main()
