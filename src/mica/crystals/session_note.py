"""Reads the marks of a session as a colleague would: what was asked, decided, found and changed, and how it ended.

A line is a whole sentence or list item, with the header above it, or a short answer with the question that it answers.
Acknowledgements, pasted logs, announcements and running commentary give no lines. A status that a later statement
overtakes is left out: "2 tests fail" says nothing once "all green" follows.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

import msgspec

from mica.crystals.digest import DigestSource
from mica.crystals.open_marks import OPEN_TAGS
from mica.crystals.salience import IDENTIFIER, units
from mica.crystals.sentences import is_announcement, is_principle, is_question
from mica.format import prose
from mica.format.titles import is_acknowledgement, is_courtesy
from mica.model.event import EventId

Role = Literal["asked", "decided", "found", "changed", "ended", "open"]

CLOSING_TAGS = frozenset({"closing", "report"})  # the words with which an agent ends a turn
SUMMARY_TAG = "summary"  # an agent's own summary of the session, such as one it made when its window was full
DECISION_TAGS = frozenset({"decision", "veto", "taste"})
KEY_TAGS = frozenset(
    {"answer", "correction", "eureka", "fact", "finding", "gotcha", "milestone", "preference", "reflection", "rule"}
)  # of marks that their author tagged as worth knowing
NEXT_TAGS = frozenset({"next", "task", "todo"})  # of marks that name work to do
COMMENTARY_TAGS = frozenset({"narration", "edit", "command", "error"})
ANSWER_WORDS_MAX = 12  # a longer answer can be understood without the question
CONSENT_WORDS_MAX = 3  # "do both" needs what it answers
ECHO_CHARACTERS_MIN = 4  # of a repeated word; shorter ones are common in all languages
SHORT_QUESTION_WORDS = 4  # "What applies?" needs the sentence before it
TURN_WORDS_MAX = 20  # a user's turn of so few words stays whole
ECHO_WORDS_MAX = 6  # of an answer that repeats words of what it answers, such as "on blur"
BODY_CHARACTERS_MAX = 200  # of the first sentence of a commit's body
DONE_SHARE = 0.5  # of the units of open work; a later line with so many of them is taken to finish it
CLOSING_WORDS_MIN = 15  # fewer closing words hardly say how a session ended
CLOSINGS_MAX = 3
ANSWERED = " — user: "  # between what an agent asked or suggested and the answer
BECAUSE = " — why: "  # between a mark and the reason that its author gave
LINE_CHARACTERS_MAX = 400  # of sentences that are joined
CHARACTERS_MAX = 20_000  # of a mark that are read


class NoteLine(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a note: what was said, in the words of its marks."""

    role: Role
    text: str
    sources: tuple[EventId, ...]
    place: int  # the index of its mark
    number: int = 0  # the index of the line in its mark
    paragraph: int = 0  # lines of the same paragraph of a mark belong together
    header: str = ""  # of a list item
    is_open: bool = False  # it names unfinished work or an open question
    is_proposal: bool = False  # an agent suggests or asks something
    by_user: bool = False
    is_summary: bool = False
    is_key: bool = False  # the author tagged it as a fact, a preference and the like, or gave a reason


class SessionNote(msgspec.Struct, frozen=True, kw_only=True):
    """The lines of a session in order of time, and those with a status that a later line overtakes."""

    lines: tuple[NoteLine, ...]
    overtaken: tuple[NoteLine, ...] = ()

    @property
    def first_request(self) -> str:
        """The first request or decision of a user; "" if there is none."""
        return next((line.text for line in self.lines if line.by_user), "")


def read_note(marks: Sequence[DigestSource]) -> SessionNote:
    """Read the note of one session from its marks, which must be in order of time."""
    last = _last_words(marks)
    has_words = any(not COMMENTARY_TAGS.intersection(mark.tags) and "prompt" not in mark.tags for mark in marks)
    lines: list[NoteLine] = []
    offered: list[NoteLine] = []  # the closing words that the next prompt answers
    for place, mark in enumerate(marks):
        if "prompt" in mark.tags or "plan" in mark.tags:
            lines += _user_lines(mark, place, offered)
            offered = []
        elif "commit" in mark.tags:
            lines += _commit_lines(mark, place)
        elif CLOSING_TAGS.intersection(mark.tags) or SUMMARY_TAG in mark.tags:
            offered = _agent_lines(mark, place, is_last=place in last)
            lines += offered
        elif not COMMENTARY_TAGS.intersection(mark.tags):
            lines += _noted_lines(mark, place)
        elif not has_words and "narration" in mark.tags:
            lines += _agent_lines(mark, place, is_last=False)
    first: dict[int, int] = {}
    for index, line in enumerate(lines):
        first.setdefault(line.place, index)
    numbered = [msgspec.structs.replace(line, number=index - first[line.place]) for index, line in enumerate(lines)]
    quoted = {line.text.rpartition(ANSWERED)[0] for line in numbered if ANSWERED in line.text}
    return check_status(
        [line for line in numbered if line.role == "ended" or not (line.text in quoted or _is_listed(line, quoted))]
    )


def _is_listed(line: NoteLine, quoted: Iterable[str]) -> bool:
    """Return True for an item of a list of proposals that an answer quotes."""
    start = f"{line.header}: "
    return bool(line.header) and any(
        each.startswith(start) and line.text.removeprefix(start) in each for each in quoted
    )


def _last_words(marks: Sequence[DigestSource]) -> set[int]:
    """Return the indexes of the closing words and summaries with which a session ended.

    If the very last words are few, such as "Fine, no symlink then.", the ones before belong to them.
    """
    places: set[int] = set()
    words = 0
    for place in range(len(marks) - 1, -1, -1):
        tags = marks[place].tags
        if SUMMARY_TAG in tags or CLOSING_TAGS.intersection(tags):
            places.add(place)
            words += len(marks[place].text.split())
            if len(places) == CLOSINGS_MAX or words >= CLOSING_WORDS_MIN:
                break
    return places


# -- Lines of one mark ----------------------------------------------------------------------------------------


_RULE = re.compile(
    r"\b(?:always|never|ever|from now on|don't|do not|no more|must|only|immer|nie|niemals|ab jetzt|nur noch|"
    r"siempre|nunca|"
    r"solo|toujours|jamais|uniquement)\b",
    re.IGNORECASE,
)
_CHOICE = re.compile(
    r"^(?:no|nein|non)\b|\b(?:drop|use|take|keep|go with|forget|skip|leave|instead|rather|switch to|required|"
    r"stick (?:to|with)|"
    r"agreed?|decided|nimm|nehmen|stattdessen|statt|weglassen|entschieden|usa|quita|deja|en vez|prends|garde|"
    r"utilise|plutôt)\b",
    re.IGNORECASE,
)
_OPEN = re.compile(
    r"(?:^|[.;:,(]\s+|\b(?:and|but|und|aber|y|et)\s+)(?:(?:still|noch)\s+)?"
    r"(?:open\b(?!ed|s|ing)|missing|left(?: to do| open)?\b|remaining|to[- ]?do\b|todo|next(?: steps?|"
    r" up)?\s*[:,]|pending|blocked|"
    r"tomorrow\s*[:,]|offen\b|fehlt|fehlen|nächste schritte|als nächstes|morgen\s*[:,]|pendiente|falta|"
    r"siguientes?(?: pasos?)?\s*[:,]|"
    r"mañana\s*[:,]|reste(?: à faire)?|à faire|prochaines? étapes?|demain\s*[:,])"
    r"|^(?:tomorrow|morgen|mañana|demain)\b|\b(?:still (?:open|missing|to do|pending|needs?|fails?|broken)|"
    r"not (?:yet )?(?:done|committed|merged|finished|started|fixed|"
    r"tested|deployed|pushed)|(?:isn't|aren't|hasn't been|haven't been) (?:yet )?(?:done|committed|merged|"
    r"finished|fixed|tested|deployed|"
    r"decided)|nothing (?:of it )?is committed|uncommitted|undecided|unresolved|not yet|noch (?:nicht|offen)|"
    r"(?:bleibt|ist|sind) offen|"
    r"todavía no|aún no|falta(?:n)?\b|queda(?:n)? pendientes?|pas encore|il reste|there is left|is left\b|"
    r"remains? (?:open|to)|"
    r"waiting (?:for|on)|wartet auf)\b",
    re.IGNORECASE,
)
_PROPOSAL = re.compile(
    r"\b(?:I'd|I would|we could|I could|my (?:proposal|vote|suggestion|recommendation|advice)|I (?:suggest|"
    r"propose|recommend)|"
    r"shall I|should I|do you want|would you like|tell me (?:if|whether|which)|let me know|ich würde|würde ich|"
    r"mein vorschlag|ich schlage|"
    r"ich empfehle|soll ich|möchten sie|möchtest du|yo (?:haría|usaría|propondría)|propongo|sugiero|recomiendo|"
    r"¿?quieres|¿?hago|"
    r"je propose|je ferais|je recommande|je suggère|veux-tu|voulez-vous|dois-je)\b",
    re.IGNORECASE,
)
_OPTIONS = re.compile(
    r"(?:suggestions?|proposals?|options?|vorschl[aä]ge?|optionen|möglichkeiten|propuestas?|opciones|propositions?)\b",
    re.IGNORECASE,
)
_LEANS = re.compile(
    r"(?:it|this|that|they|these|those|both|he|she|so|use it|which|es|das|dies(?:e[rs]?)?|sie|beide[sr]?|er|eso|"
    r"esto|estos|"
    r"ellos|ambos|cela|ça|ceci|ils|elles|il|elle)\b(?!')",
    re.IGNORECASE,
)
_ASIDE = re.compile(r"\([^()]*\)\W*$")
_TRAILER = re.compile(r"[A-Z][\w-]+(?:-by|-[Aa]uthored-[Bb]y|-Id): |(?:Closes|Fixes|Refs?):? #\d+$|🤖 ")


def _sentences(mark: DigestSource, *, is_wrapped: bool = False) -> Iterator[prose.ProseSentence]:
    """Yield the sentences of a mark without code and logs, as they can be read alone.

    A sentence that begins with a pronoun joins the one before, and so do the sentence after a question and those of a
    list item. A sentence that ends with a colon becomes the header of the list below it.
    """
    held: prose.ProseSentence | None = None
    header = ""
    for sentence in prose.sentences(prose.clean(mark.text[:CHARACTERS_MAX]), is_wrapped=is_wrapped):
        header = header if sentence.is_item else ""
        each = sentence
        if header and not sentence.header:
            each = msgspec.structs.replace(sentence, header=header)
        is_same = held is not None and each.paragraph == held.paragraph
        is_short = is_question(each.text) and len(each.text.split()) <= SHORT_QUESTION_WORDS
        is_answer = held is not None and is_question(held.text)
        if (
            held is not None
            and is_same
            and (_LEANS.match(each.text) or each.is_item or is_short or is_answer or _ASIDE.match(each.text))
        ):
            whole = f"{held.text} {each.text}"
            if len(whole) <= LINE_CHARACTERS_MAX:
                held = msgspec.structs.replace(held, text=whole)
                continue
        if held is not None:
            yield held
        held = each
        if each.text.endswith(":") and not each.is_item:
            held, header = None, each.text.rstrip(": ")
    if held is not None:
        yield held


def _with_header(sentence: prose.ProseSentence) -> str:
    return f"{sentence.header}: {sentence.text}" if sentence.header and sentence.is_item else sentence.text


def _user_lines(mark: DigestSource, place: int, offered: Sequence[NoteLine]) -> Iterator[NoteLine]:
    """Yield what a user asked or decided. A short answer comes with the question or proposal that it answers."""
    spoken = list(_sentences(mark))
    if not spoken:
        return
    meant = [each for each in spoken if not is_acknowledgement(each.text)]
    answer = " ".join(each.text for each in spoken)
    proposal = _answered(answer, offered) if meant or _CONSENT.search(answer) else None
    if proposal is not None and len(answer.split()) <= ANSWER_WORDS_MAX and not is_question(answer):
        yield NoteLine(
            role="decided",
            text=f"{proposal.text}{ANSWERED}{answer}",
            sources=(*proposal.sources, mark.id),
            place=place,
            by_user=True,
        )
        return
    if len(answer.split()) <= TURN_WORDS_MAX and meant:
        decides = proposal is not None or _RULE.search(answer) or _CHOICE.search(answer)
        yield NoteLine(
            role="decided" if offered and decides and not is_question(answer) else "asked",
            text=" ".join(map(_with_header, meant)),
            sources=(mark.id,),
            place=place,
            by_user=True,
        )
        return
    for each in meant:
        is_decided = not is_question(each.text) and (proposal is not None or bool(_RULE.search(each.text)))
        yield NoteLine(
            role="decided" if is_decided else "asked",
            text=_with_header(each),
            sources=(mark.id,),
            place=place,
            by_user=True,
        )


def _answered(answer: str, offered: Sequence[NoteLine]) -> NoteLine | None:
    """Return what an answer refers to in the closing words before it.

    That is the last question or proposal, with all items of its list. Without one, a short answer refers to the line
    that has the same words.
    """
    proposal = next((line for line in reversed(offered) if line.is_proposal), None)
    if proposal is None and len(answer.split()) <= ECHO_WORDS_MAX:
        named = {unit for unit in units(answer) if len(unit) >= ECHO_CHARACTERS_MIN}
        shared = [(len(named.intersection(units(line.text))), line.number, line) for line in offered]
        count, _, proposal = max(shared, key=lambda each: each[:2], default=(0, 0, None))
        is_bare = len(answer.split()) <= CONSENT_WORDS_MAX and not is_acknowledgement(answer)
        if not count and is_bare and _DO_THAT.search(answer):
            return offered[-1] if offered else None
        return proposal if count else None
    if proposal is None or not proposal.header:
        return proposal
    items = [line.text.removeprefix(f"{line.header}: ") for line in offered if line.header == proposal.header]
    listed = f"{proposal.header}: {'; '.join(items)}"
    return msgspec.structs.replace(proposal, text=listed if len(listed) <= LINE_CHARACTERS_MAX else proposal.header)


_DO_THAT = re.compile(r"\b(?:do|both|all of (?:it|them)|mach|beides?|alles?|haz|ambos|fais|les deux)\b", re.IGNORECASE)
_CONSENT = re.compile(
    r"\b(?:ok(?:ay)?|yes|yep|yeah|sure|go|do|agreed?|continue|proceed|ja|mach|klar|passt|weiter|sí|si|vale|dale|"
    r"adelante|oui|"
    r"d'accord|vas-y)\b|👍",
    re.IGNORECASE,
)


def _offers(header: str) -> bool:
    """Return True for the header of a list of proposals."""
    return bool(_OPTIONS.match(header) or _PROPOSAL.search(header))


def _agent_lines(mark: DigestSource, place: int, *, is_last: bool) -> list[NoteLine]:
    """Return the lines of an agent's closing words or of its own summary of the session."""
    is_summary = SUMMARY_TAG in mark.tags
    lines: list[NoteLine] = []
    for each in _sentences(mark):
        if is_courtesy(each.text) or (is_announcement(each.text) and not is_last):
            continue
        text = _with_header(each)
        lines.append(
            NoteLine(
                role="ended" if is_last else "found",
                text=text,
                sources=(mark.id,),
                place=place,
                paragraph=each.paragraph,
                is_open=bool(_OPEN.search(text) or (each.header and _OPEN.search(each.header))),
                header=each.header if each.is_item else "",
                is_proposal=bool(_PROPOSAL.search(each.text) or (each.is_item and _offers(each.header)))
                or is_question(each.text),
                is_summary=is_summary,
            )
        )
    return lines


def _commit_lines(mark: DigestSource, place: int) -> Iterator[NoteLine]:
    """Yield the subject of a commit, with the first sentence of its body."""
    subject, _, body = mark.text[:CHARACTERS_MAX].strip().partition("\n")
    kept = "\n".join(line for line in body.splitlines() if not _TRAILER.match(line.strip()))
    first = next(prose.sentences(prose.clean(kept), is_wrapped=True), None) if kept.strip() else None
    if first is not None and len(first.text) <= BODY_CHARACTERS_MAX:
        subject = f"{subject.rstrip('. ')}. {_with_header(first)}"
    if subject.strip():
        yield NoteLine(role="changed", text=subject.strip(), sources=(mark.id,), place=place)


def _noted_lines(mark: DigestSource, place: int) -> Iterator[NoteLine]:
    """Yield the lines of a mark that an agent or a person recorded on purpose."""
    tags = set(mark.tags)
    is_open = bool((OPEN_TAGS | NEXT_TAGS).intersection(tags))
    role: Role = "open" if is_open else "decided" if DECISION_TAGS.intersection(tags) else "found"
    is_key = bool(KEY_TAGS.intersection(tags) or mark.reason)
    sentences = list(_sentences(mark))
    for number, each in enumerate(sentences):
        reason = f"{BECAUSE}{mark.reason}" if mark.reason and number + 1 == len(sentences) else ""
        if mark.tags or not (is_acknowledgement(each.text) or is_announcement(each.text)):
            yield NoteLine(
                role=role,
                text=_with_header(each) + reason,
                sources=(mark.id,),
                place=place,
                paragraph=each.paragraph,
                is_open=is_open,
                is_key=is_key,
            )


# -- Statements that later ones overtake ----------------------------------------------------------------------


_TESTED = r"\b(?:tests?|specs?|suite|builds?|ci|pipeline|checks?|pruebas|essais)\b"
_TESTS_FAIL = re.compile(
    rf"{_TESTED}[^.;]*?\b(?:fail(?:s|ed|ing)?|red|broken|rot|schlagen fehl|schlägt fehl|fehlgeschlagen|fallan|"
    rf"falla|échouent)\b"
    rf"|(?<!no )(?<!\b0 )\b(?:failing|failed|broken) {_TESTED}",
    re.IGNORECASE,
)
_NONE_FAIL = re.compile(
    r"\b(?:no|0|zero|none|keine?|ningun[oa]?|aucun) (?:\w+ ){0,2}(?:fail|tests? fail)", re.IGNORECASE
)
_TESTS_PASS = re.compile(
    rf"\b(?:all|everything|it is|alles|alle|todo|tout)(?: is| are| ist| sind| está| est)? (?:green|grün|verde|vert)\b"
    rf"|{_TESTED}[^.;]*?\b(?:pass(?:es|ed)?|green|succeed(?:s|ed)?|grün|laufen durch|bestehen|pasan|passent)\b",
    re.IGNORECASE,
)
_NOT_COMMITTED = re.compile(
    r"\buncommitted\b|\b(?:not|n't|nothing|nichts?|no|pas)\b[^.;]{0,30}\b(?:commit(?:t?ed|tet)?|eingecheckt)\b",
    re.IGNORECASE,
)
_NOT_MERGED = re.compile(
    r"\bunmerged\b|\b(?:not|n't|nicht|no|pas)\b[^.;]{0,20}\b(?:merged|gemerg[et]d?|gemergt|fusionad[oa])\b",
    re.IGNORECASE,
)
_MERGED = re.compile(r"\b(?:merged|gemergt|gemerged|fusionad[oa])\b", re.IGNORECASE)


_VALUE = re.compile(r"\d[\d.,]*\s*([^\W\d_]+|%)")
_NOW = re.compile(r"\b(?:now|jetzt|nun|ahora|maintenant|désormais)\b", re.IGNORECASE)


def _values(text: str) -> frozenset[tuple[str, str]]:
    """Return the measures that a statement gives for its subject, such as ("retention", "days")."""
    named = [unit for unit in units(text) if not unit.isdigit()]
    return frozenset((named[0], each[1].lower()) for each in _VALUE.finditer(text)) if named else frozenset()


def check_status(lines: Sequence[NoteLine]) -> SessionNote:
    """Separate the lines with a status that a later line overtakes, and no longer mark finished work as open."""
    last: dict[str, int] = {}  # the place of the last line that ends a status
    for line in lines:
        for status in _ended_statuses(line):
            last[status] = line.place
    over = [any(last.get(status, -1) > line.place for status in _statuses(line)) for line in lines]
    kept = [line for line, is_over in zip(lines, over, strict=True) if not is_over]
    named = [frozenset(unit for unit in units(line.text) if not unit.isdigit()) for line in kept]
    naming: defaultdict[str, list[int]] = defaultdict(list)
    for number, each in enumerate(named):
        for unit in each:
            naming[unit].append(number)
    checked = [
        msgspec.structs.replace(line, is_open=False)
        if line.is_open and line.role in {"found", "ended"} and _is_done(number, kept, named, naming)
        else line
        for number, line in enumerate(kept)
    ]
    gone = [line for line, is_over in zip(lines, over, strict=True) if is_over]
    return SessionNote(lines=tuple(checked), overtaken=tuple(gone))


def _statuses(line: NoteLine) -> Iterator[str]:
    """Yield the statuses that a line reports and that a later line may end."""
    if line.by_user:
        return
    if _TESTS_FAIL.search(line.text) and not _NONE_FAIL.search(line.text):
        yield "tests fail"
    if _NOT_COMMITTED.search(line.text):
        yield "not committed"
    if _NOT_MERGED.search(line.text):
        yield "not merged"
    if line.role in {"found", "ended"}:
        yield from (f"{subject} in {measure}" for subject, measure in _values(line.text))


def _ended_statuses(line: NoteLine) -> Iterator[str]:
    """Yield the statuses that a line ends."""
    if line.role == "changed":
        yield "not committed"
    if line.by_user or line.is_proposal:
        return
    if _TESTS_PASS.search(line.text) and (_NONE_FAIL.search(line.text) or not _TESTS_FAIL.search(line.text)):
        yield "tests fail"
    if _MERGED.search(line.text) and not _NOT_MERGED.search(line.text):
        yield "not merged"
    if line.role in {"found", "ended"} and _NOW.search(line.text):
        yield from (f"{subject} in {measure}" for subject, measure in _values(line.text))


def _is_done(
    number: int, lines: Sequence[NoteLine], named: Sequence[frozenset[str]], naming: Mapping[str, Sequence[int]]
) -> bool:
    """Return True if a later line answers an open question or reports open work as done."""
    place = lines[number].place
    if is_question(lines[number].text) and any(other.by_user and other.place > place for other in lines):
        return True
    shared: defaultdict[int, set[str]] = defaultdict(set)
    for unit in named[number]:
        for other in naming[unit]:
            if lines[other].place > place and not lines[other].is_open and not lines[other].is_proposal:
                shared[other].add(unit)
    return any(
        len(both) >= DONE_SHARE * len(named[number])
        or (lines[other].role == "changed" and any(unit.startswith(IDENTIFIER) for unit in both))
        for other, both in shared.items()
    )


def is_rule(line: NoteLine) -> bool:
    """Return True if a line states a general rule."""
    return line.role in {"decided", "found"} and is_principle(line.text)
