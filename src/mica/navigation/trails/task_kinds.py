"""Determine the kind of a task from the words of its prompt: an action, such as "fix", and what the task is about."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from mica.model.text_cache import remember_texts
from mica.model.trail import SLUG_CHARACTERS_MAX
from mica.model.walk import WORKFLOW
from mica.words import terms, terms_of, words

VERBS = {  # the class of a task, and the words that indicate it
    "fix": "fix fixes fixed mend repair bug bugs broken breaks crash crashes error errors fail fails failing failure "
    "wrong regression issue solve resolve debug",
    "test": "test tests testing coverage",
    "review": "review audit check verify validate inspect",
    "remove": "remove delete drop",
    "explain": "explain how why what where describe understand show tell analyze analyse investigate explore find",
    "document": "document documentation docs readme changelog",
    "release": "release publish deploy ship bump",
    "change": "change update refactor rename move improve modify adjust replace migrate convert simplify optimize "
    "optimise clean extract split adapt",
    "add": "add implement create build support write introduce make generate new enable integrate",
}
OTHER = "work"
# Common words of prompts that do not describe the task.
EMPTY_WORDS = frozenset(
    "please need want should must following plan implement implementation task tasks context file files code line "
    "lines use used using now also like get set see look all each one two first next new only some any more same "
    "make sure let work works working thing things step steps goal section summary project repository repo request "
    "interrupted user image way currently current here there without between after before when while because ok yes "
    "http https www com org md".split()
)
HEAD_CHARACTERS = 400  # of a prompt: its beginning describes the task; logs and plans follow
PROMPTS_MAX = 16_384  # cached prompt beginnings, a few megabytes

_CLASSES = {word: name for name, verbs in VERBS.items() for word in verbs.split()}
_SLUG_LETTERS = re.compile(r"[^a-z0-9]+")


@remember_texts(PROMPTS_MAX)
def verb_class(prompt: str) -> str:
    """Return the action of a task, a key of VERBS such as "fix". The first word that indicates an action decides.

    If no word at the beginning of the prompt does, the result is "work".
    """
    found = (_CLASSES[word] for word in words(prompt[:HEAD_CHARACTERS]) if word in _CLASSES)
    return next(found, OTHER)


@remember_texts(PROMPTS_MAX)
def object_words(prompt: str) -> tuple[str, ...]:
    """Return the words that say what a task is about, each once, in order.

    Words that indicate an action (see VERBS), common words and numbers are left out.
    """
    found = [
        word
        for word in words(prompt[:HEAD_CHARACTERS])
        if len(word) > 2 and word.isascii() and word.isalpha() and word not in _CLASSES and word not in EMPTY_WORDS
    ]
    return tuple(dict.fromkeys(word for word in found if terms_of([word])))


@remember_texts(PROMPTS_MAX)
def prompt_terms(prompt: str) -> frozenset[str]:
    """Return the search terms in the beginning of a prompt."""
    return frozenset(terms(prompt[:HEAD_CHARACTERS]))


def common_words(
    prompts: Iterable[str], *, limit: int, paths: Iterable[str] = (), rarity: Mapping[str, float] | None = None
) -> list[str]:
    """Return the most common words of these prompts, at most `limit`.

    Of words with the same stem, only the most common is returned. Words that occur in `paths` count three times.
    `rarity` has the weight of each term; without it, all weights are 1.
    """
    counts: Counter[str] = Counter()
    places: dict[str, int] = {}
    for prompt in prompts:
        for place, word in enumerate(object_words(prompt)):
            counts[word] += 1
            places[word] = min(place, places.get(word, place))
    named = {word for path in paths for word in words(path)}
    for word in named & set(counts):
        counts[word] *= 3

    def worth(word: str) -> float:
        return counts[word] * (rarity or {}).get(terms_of([word])[0], 1.0)

    chosen: dict[str, str] = {}
    for word in sorted(counts, key=lambda word: (-worth(word), places[word], word)):
        chosen.setdefault(terms_of([word])[0], word)
    return list(chosen.values())[:limit]


def shape_of(
    prompts: Sequence[str], tasks: Iterable[str | None], *, paths: Iterable[str] = (), rarity: Mapping[str, float]
) -> str:
    """Return the most common kind of the tasks with these prompts, such as `fix-login-session`.

    `tasks` are the task names of the contexts in which the prompts were recorded. If there are workflows among them,
    the most common workflow is returned instead, such as `adw_build`. The other parameters are those of `common_words`.
    """
    workflows = Counter(task for task in tasks if task is not None and task.startswith(WORKFLOW))
    if workflows:
        return min(workflows, key=lambda task: (-workflows[task], task))
    classes = Counter(map(verb_class, prompts))
    verb = min(classes, key=lambda name: (-classes[name], name)) if classes else OTHER
    return "-".join([verb, *common_words(prompts, limit=2, paths=paths, rarity=rarity)])


def slug_of(text: str) -> str:
    """Return a text as a slug, which has only small letters, digits and hyphens and can be the name of a command."""
    slug = _SLUG_LETTERS.sub("-", text.lower()).strip("-")[:SLUG_CHARACTERS_MAX].strip("-")
    return slug or OTHER
