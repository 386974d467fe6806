"""Fit the weights by which mica recognizes the kind of a statement.

    python scripts/fit_beliefs.py            # cross-validate
    python scripts/fit_beliefs.py --write    # and write src/mica/beliefs/model.json

The sentences are the dev half of the labels, and sentences written for this purpose. The cues were made while looking
at the dev half, where they seem better than they are; so their weights are fitted on the other sentences only. Needs
NumPy, which mica itself does not.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mica.beliefs.classification import kinds_with_cues
from mica.beliefs.signs import CLASSES, NONE, signs_of
from mica.beliefs.statements import without_quotations
from mica.model.belief import KINDS

ROOT = Path(__file__).parent.parent
LABELS = ROOT / "tests" / "fixtures" / "beliefs"
MODEL = ROOT / "src" / "mica" / "beliefs" / "model.json"
KIND_NAMES = {"open_task": "task", "open_question": "question", "-": NONE}
PLACES = {"p": "prompt", "c": "closing", "m": "commit"}
FOLDS = 6
STEPS = 250
WORD_COUNT_MIN = 3
PENALTY, PENALTY_WORD = 0.6, 2.5
WEIGHT_MIN = 6  # in hundredths; smaller ones change nothing
SEED = 20261119


class Row(NamedTuple):
    text: str
    speaker: str
    place: str
    kinds: tuple[str, ...]
    is_dev: bool


def read() -> list[Row]:
    found = []
    for line in (LABELS / "sentences.dev.jsonl").read_text("utf-8").splitlines():
        row = json.loads(line)
        if row["place"] in PLACES.values():
            kinds = tuple(KIND_NAMES.get(kind, kind) for kind in row["kinds"]) or (NONE,)
            found.append(
                Row(row["text"], "user" if row["speaker"] == "user" else "agent", row["place"], kinds, is_dev=True)
            )
    for path in sorted(LABELS.glob("written_*.txt")):
        for line in path.read_text("utf-8").splitlines():
            kind, place, text = line.split("|", 2)
            speaker = "user" if place == "p" else "agent"
            found.append(Row(text, speaker, PLACES[place], (KIND_NAMES.get(kind, kind),), is_dev=False))
    return found


def signs_in(row: Row) -> list[str]:
    sentence = without_quotations(row.text)
    cues = [] if row.is_dev else kinds_with_cues(sentence)
    return signs_of(sentence, speaker=row.speaker, place=row.place, cues=cues)


def matrix(signs: list[list[str]], vocabulary: dict[str, int]) -> np.ndarray:
    made = np.zeros((len(signs), len(vocabulary)), dtype=np.float32)
    for index, each in enumerate(signs):
        for sign in each:
            if sign in vocabulary:
                made[index, vocabulary[sign]] = 1
    return made


def fit(signs: list[list[str]], rows: list[Row]) -> tuple[dict[str, int], np.ndarray]:
    counts = Counter(sign for each in signs for sign in each)
    kept = sorted(sign for sign, count in counts.items() if count >= WORD_COUNT_MIN)
    vocabulary = {sign: index for index, sign in enumerate(kept)}
    inputs = matrix(signs, vocabulary)
    targets = np.zeros((len(rows), len(CLASSES)), dtype=np.float32)
    for index, row in enumerate(rows):
        for kind in row.kinds:
            targets[index, CLASSES.index(kind)] = 1 / len(row.kinds)
    penalty = np.array([PENALTY_WORD if sign.startswith("w:") else PENALTY for sign in kept], dtype=np.float32)[:, None]
    penalty[vocabulary["bias"]] = 0.01
    weights: np.ndarray = np.zeros((len(kept), len(CLASSES)), dtype=np.float32)
    mean: np.ndarray = np.zeros_like(weights)
    square: np.ndarray = np.zeros_like(weights)
    for step in range(1, STEPS + 1):
        sums = inputs @ weights
        sums -= sums.max(axis=1, keepdims=True)
        chances = np.exp(sums)
        chances /= chances.sum(axis=1, keepdims=True)
        slope = inputs.T @ (chances - targets) + penalty * weights
        mean = 0.9 * mean + 0.1 * slope
        square = 0.999 * square + 0.001 * slope**2
        weights -= 0.03 * (mean / (1 - 0.9**step)) / (np.sqrt(square / (1 - 0.999**step)) + 1e-8)
    return vocabulary, weights


def predict(signs: list[list[str]], vocabulary: dict[str, int], weights: np.ndarray) -> np.ndarray:
    sums = matrix(signs, vocabulary) @ weights
    chances = np.exp(sums - sums.max(axis=1, keepdims=True))
    return np.asarray(chances / chances.sum(axis=1, keepdims=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    rows = read()
    signs = [signs_in(row) for row in rows]
    if options.write:
        vocabulary, weights = fit(signs, rows)
        rounded = {sign: [round(100 * float(each)) for each in weights[index]] for sign, index in vocabulary.items()}
        kept = {sign: row for sign, row in rounded.items() if max(map(abs, row)) >= WEIGHT_MIN}
        lines = ",\n".join(f"{json.dumps(sign, ensure_ascii=False)}: {json.dumps(row)}" for sign, row in kept.items())
        MODEL.write_text("{\n" + lines + "\n}\n", "utf-8")
        print(len(rows), "sentences,", len(kept), "signs")
        return
    chances = np.zeros((len(rows), len(CLASSES)))
    folds = np.random.default_rng(SEED).integers(0, FOLDS, len(rows))
    for fold in range(FOLDS):
        inside = [index for index in range(len(rows)) if folds[index] != fold]
        outside = [index for index in range(len(rows)) if folds[index] == fold]
        fitted = fit([signs[each] for each in inside], [rows[each] for each in inside])
        chances[outside] = predict([signs[each] for each in outside], *fitted)
    for threshold in (0.35, 0.45, 0.55, 0.65):
        print(f"\nthreshold {threshold}: kind, precision and recall of dev, of written")
        for kind in KINDS:
            cells = []
            for is_dev in (True, False):
                right = wrong = missed = 0
                for row, each in zip(rows, chances, strict=True):
                    if row.is_dev != is_dev:
                        continue
                    best = int(each[:-1].argmax())
                    found = CLASSES[best] == kind and each[best] >= threshold
                    right += found and kind in row.kinds
                    wrong += found and kind not in row.kinds
                    missed += not found and kind in row.kinds
                cells.append(f"{right / max(1, right + wrong):.2f}/{right / max(1, right + missed):.2f}")
            print(f"  {kind:<12}", *cells)


if __name__ == "__main__":
    main()
