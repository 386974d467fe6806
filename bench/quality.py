"""With and without memory: is the turn that answers a question among the 1,000 tokens that an agent sees?

    python bench/quality.py locomo.json

Every conversation becomes a space, every turn a mark. With memory, an agent sees a brief of 1,000 tokens about the
question; without, the last 1,000 tokens of the conversation, as in a limited window. Both get the same questions, and
the share of questions that memory made worse is printed beside the gain. Without a file a small made-up conversation
is used, which only shows that the script works. The last line of the output is one JSON
object.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec

import mica
from _table import argument_parser, finish, machine, show
from conversations import Conversation, Question, interval, line_tokens, made_up, read_locomo, sample_questions
from mica.settings import load_settings

BUDGET = 1_000
DEADLINE_S = 60.0  # long enough that the machine's load cannot change what is measured
QUICK_QUESTIONS = 60


class EvidenceShare(msgspec.Struct, frozen=True, kw_only=True):
    """The share of a question's evidence in the context, and its cost."""

    on: float
    off: float
    on_tokens: int
    off_tokens: int


def latest(conversation: Conversation) -> tuple[set[str], int]:
    """Return the last turns that fit into the budget, and their tokens by a real tokenizer."""
    seen: set[str] = set()
    tokens = 0
    for turn in reversed(conversation.turns):
        cost = line_tokens(turn.unit)
        if tokens + cost > BUDGET:
            break
        seen.add(turn.id)
        tokens += cost
    return seen, tokens


async def ask_all(conversation: Conversation, *, is_compressed: bool) -> list[EvidenceShare]:
    """Measure every question of a conversation, with and without memory."""
    settings = msgspec.structs.replace(load_settings(), semantic="off", time_zone="UTC")
    window, window_tokens = latest(conversation)
    async with mica.open(":memory:", settings=settings) as memory:
        turn_of: dict[str, str] = {}
        for turn in conversation.turns:
            with memory.context(session=turn.session, agent=turn.speaker):
                turn_of[memory.mark(turn.text, origin="user", at=turn.at).id] = turn.id

        async def one(question: Question) -> EvidenceShare:
            brief = await memory.brief(
                question.text, budget_tokens=BUDGET, deadline_s=DEADLINE_S, now=question.now, compress=is_compressed
            )
            shown = {turn_of[each] for passage in brief.passages for each in passage.sources if each in turn_of}
            return EvidenceShare(
                on=len(shown & question.evidence) / len(question.evidence),
                off=len(window & question.evidence) / len(question.evidence),
                on_tokens=line_tokens(brief.text),
                off_tokens=window_tokens,
            )

        return [await one(question) for question in conversation.questions]


def main() -> None:
    parser = argument_parser(__doc__, quick=f"{QUICK_QUESTIONS} questions")
    parser.add_argument("file", type=Path, nargs="?", help="conversations in the format of LoCoMo")
    parser.add_argument("--compress", action="store_true", help="briefs that are compressed")
    arguments = parser.parse_args()
    conversations = list(made_up() if arguments.file is None else read_locomo(arguments.file))
    if arguments.quick:
        conversations = sample_questions(conversations, QUICK_QUESTIONS)
    shares = [one for each in conversations for one in asyncio.run(ask_all(each, is_compressed=arguments.compress))]
    gain, low, high = interval([one.on - one.off for one in shares])
    on, off = (sum(getattr(one, arm) for one in shares) / len(shares) for arm in ("on", "off"))
    worse = sum(one.on < one.off for one in shares) / len(shares)
    print(machine())
    show(
        f"evidence seen within {BUDGET:,} tokens, {len(shares)} questions",
        ("", "seen", "tokens (max)"),
        [
            ("with memory", f"{on:.1%}", str(max(one.on_tokens for one in shares))),
            ("without: the last turns", f"{off:.1%}", str(max(one.off_tokens for one in shares))),
            ("gain", f"{gain:+.1%} ({low:+.1%} to {high:+.1%})", ""),
            ("made worse", f"{worse:.1%}", ""),
        ],
    )
    finish(
        {
            "seen_on": on,
            "seen_off": off,
            "gain": gain,
            "gain_low": low,
            "gain_high": high,
            "worse": worse,
            "n": len(shares),
            "tokens_max": max(one.on_tokens for one in shares),
        }
    )


if __name__ == "__main__":
    main()
