"""All beliefs in force as one Markdown file that a person can edit, and the changes that an edit means.

    ## Rules
    - Always use uv run <!-- bqkxwzyabcdef -->

A changed line corrects its belief, a deleted line ends it, and a line without an id adds a belief.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import msgspec

from mica.errors import InvalidInput
from mica.format.beliefs import HEADINGS
from mica.format.lines import plural
from mica.model.belief import KINDS, Belief, BeliefId, BeliefKind

INTRODUCTION = """\
# Beliefs

<!-- What mica holds to be true. Change a line to correct it, delete a line to end it, write a new line to add one.
     Keep the id at the end of a line. Only beliefs that this file listed when it was opened can end. -->
"""
DELETED_SHARE_MAX = 0.5  # an edit that ends more than this share of the listed beliefs needs a confirmation
DELETED_FREE = 3  # so many may always end

_HEADING = re.compile(r"^#{1,6}\s+(.+?)\s*$")
_LISTED = re.compile(r"^\s*[-*]\s+(.*?)\s*(?:<!--\s*(b[a-z]{6,24})\s*-->)?\s*$")
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_ID = re.compile(r"<!--\s*(b[a-z]{6,24})\s*-->")


class BeliefEdit(msgspec.Struct, frozen=True, kw_only=True):
    """The changes that an edited file asks for."""

    corrected: tuple[tuple[BeliefId, str], ...] = ()  # with the new text
    ended: tuple[BeliefId, ...] = ()
    added: tuple[tuple[BeliefKind, str], ...] = ()
    skipped: tuple[tuple[BeliefId, str], ...] = ()  # corrections of beliefs that have ended since, with the new text

    @property
    def is_empty(self) -> bool:
        """True if the file asks for no change."""
        return not (self.corrected or self.ended or self.added or self.skipped)


def render(beliefs: Iterable[Belief]) -> str:
    """Return the file with these beliefs, one line each, grouped by kind."""
    by_kind: dict[BeliefKind, list[Belief]] = {kind: [] for kind in KINDS}
    for belief in beliefs:
        by_kind[belief.kind].append(belief)
    lines = [INTRODUCTION]
    for kind, heading in HEADINGS.items():
        lines.append(f"## {heading}\n")
        lines += [f"- {_one_line(each.text)} <!-- {each.id} -->" for each in by_kind[kind]]
        lines.append("")
    return "\n".join(lines)


def parse(edited: str, *, original: str, is_confirmed: bool = False) -> BeliefEdit:
    """Return the changes from `original`, a text that `render` returned, to `edited`.

    A belief that is not listed in `original` never ends, because it was added while the file was edited. Raises
    InvalidInput for a line under an unknown heading, and for an edit that would end most of the beliefs, unless
    `is_confirmed`.
    """
    before, after = _listed(original), _listed(edited)
    texts = {identifier: text for _, identifier, text in before if identifier}
    kept: dict[str, str] = {}
    added: list[tuple[BeliefKind, str]] = []
    for kind, identifier, text in after:
        if identifier in texts and identifier not in kept:
            kept[identifier] = text
        elif text and not (identifier in texts and text == texts[identifier]):
            added.append((kind, text))
    corrected = [(BeliefId(each), text) for each, text in kept.items() if text and text != texts[each]]
    ended = [BeliefId(each) for each in texts if not kept.get(each)]
    most = max(DELETED_FREE, DELETED_SHARE_MAX * len(texts))
    if ended and (len(ended) > most or len(ended) == len(texts)) and not is_confirmed:
        raise InvalidInput(
            f"this edit would end {len(ended)} of {plural(len(texts), 'belief')}, so nothing was changed; if you mean "
            "it, use `mica beliefs edit --yes` (in programs, `is_confirmed`)"
        )
    return BeliefEdit(corrected=tuple(corrected), ended=tuple(ended), added=tuple(added))


def _listed(text: str) -> Sequence[tuple[BeliefKind, str, str]]:
    """Return kind, id ("" for a new line) and text of each line of a file."""
    kinds = {heading.lower(): kind for kind, heading in HEADINGS.items()} | {kind: kind for kind in KINDS}
    ids_kept = _COMMENT.sub(lambda match: match[0] if _ID.fullmatch(match[0]) else "", text)
    kind: BeliefKind | None = None
    heading = ""
    found: list[tuple[BeliefKind, str, str]] = []
    for line in ids_kept.splitlines():
        if (match := _HEADING.match(line)) is not None:
            heading = match[1]
            kind = kinds.get(heading.lower())
        elif line.strip():
            item = _LISTED.match(line)
            body = item[1] if item is not None else line.strip()
            identifier = (item[2] if item is not None else None) or ""
            if kind is None:
                where = f"the heading {heading!r}" if heading else "no heading"
                raise InvalidInput(f"{line.strip()!r:.80} has {where}; use one of {', '.join(HEADINGS.values())}")
            if item is None and found and line[:1] in " \t":  # a long line that an editor wrapped
                last = found.pop()
                wrapped = _ID.search(body)
                found.append(
                    (last[0], last[1] or (wrapped[1] if wrapped else ""), f"{last[2]} {_ID.sub('', body).strip()}")
                )
                continue
            found.append((kind, identifier, " ".join(_ID.sub("", body).split())))
    return found


def _one_line(text: str) -> str:
    return " ".join(text.replace("<!--", "<! --").replace("-->", "-- >").split())
