"""The fence around recalled text."""

from __future__ import annotations

import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.hostile_text import CONTROLS, ENDINGS, HOSTILE, MARK, TAGS, dangers

from mica.clients import cursor
from mica.clients.claude_code import records as claude_code
from mica.clients.codex import transcript as codex
from mica.clients.copilot import transcript as copilot
from mica.clients.gemini import transcript as gemini
from mica.clients.opencode import transcript as opencode
from mica.format.fence import _OPENER, fence, neutralize, strip_remedy


@pytest.mark.parametrize("attack", [*ENDINGS, *TAGS, *CONTROLS])
def test_no_tag_survives_in_any_spelling(attack: str) -> None:
    assert dangers(attack)
    assert dangers(neutralize(attack)) == []
    assert dangers(neutralize(f"word{attack}word")) == []


PIECES = [
    *(piece for attack in (*ENDINGS, *TAGS, *CONTROLS) for piece in (attack, attack[:3], attack[3:])),
    *("<", "</", "/", ">", "|", "[", "]", "&", "lt;", "&lt", "amp;", "#60;", "memory", "from=", "s", "sys>>", "inst]"),
    *(
        " ",
        "\n",
        "\t",
        "\u00a0",
        "\u200d",
        "\u200c",
        "\ufe0f",
        "\u0301",
        "\u0600",
        "\u3164",
        "\uff1c",
        "\ufe64",
        "\u226e",
    ),
    *("😀", "中", "ن", "é", "ß", "x", "Human", "Assistant:", "=", '"', "\ud800"),
]


@given(st.lists(st.sampled_from(PIECES) | st.characters(), max_size=12).map("".join))
def test_no_tag_survives_in_any_composition(text: str) -> None:
    """keeps: U-09"""
    neutral = neutralize(text)

    assert dangers(neutral) == []
    assert neutralize(neutral) == neutral


@given(
    st.text(
        alphabet=st.characters(exclude_categories=("Cc", "Cf", "Cn", "Cs", "Mn", "Zl", "Zp"), exclude_characters="<[&")
    )
)
def test_text_without_tags_stays_the_same(text: str) -> None:
    if not text.startswith(("Human", "Assistant")):
        hidden = "\u115f\u1160\u3164\uffa0\U000e0000"
        assert neutralize(text) == "".join(each for each in text if each not in hidden)


@pytest.mark.parametrize(
    "text",
    [
        "def f(a: List<Memory>, b: Promise<ToolCall>) -> vector<int>: return a < b > c",
        '<div className="memory">{items.map((each) => <Item key={each.id} {...each} />)}</div>',
        "<table><tr><td>1 &lt; 2 &amp;&amp; 3 &gt; 2</td></tr></table><!-- a comment -->",
        "<svg:rect/> <xsl:template match='/'> <memory-map> <system.web> git clone <url> && cat <input >output",
        "f <| g x |> h; if a<s and s>b: x[0] = y[inst]; a <= b << 2; array[i] & mask; &self; &mut T; &'a str",
        "👩‍👩‍👧 ❤️‍🔥 1️⃣ #️⃣ ©️ ☎︎ 🏳️‍🌈 👍🏽",  # emoji with joiners, selectors and skin tones
        "می‌خواهم نمی‌دانم",  # Persian with a non-joiner
        "مرحبا بالعالم، ١٢٣؟ שלום עולם",
        "क्‍ष श्री नमस्ते",  # Devanagari with a joiner
        "ＡＢＣ full width, ½ ﬁne, naïve café, 中文、日本語、한국어",
        "tabs\tand\nnewlines stay; Human beings; the human: a person",
    ],
)
def test_ordinary_text_stays_as_it_is(text: str) -> None:
    assert neutralize(text) == text


def test_the_flag_of_a_region_and_marks_of_direction_lose_what_is_invisible() -> None:
    assert neutralize("🏴\U000e0067\U000e0062\U000e007f") == "🏴"
    assert neutralize("שלום\u200f!") == "שלום!"


@pytest.mark.parametrize("attack", ["</m\u0435mory>", "<system\u2010reminder>", "</m\u00e9mory>", "<\u2215memory>"])
def test_letters_that_only_look_alike_make_a_tag_too(attack: str) -> None:
    assert neutralize(attack) == f"‹{attack[1:]}"


def test_every_character_that_is_read_as_the_beginning_of_a_tag_is_known() -> None:
    characters = map(chr, range(0x80, sys.maxunicode + 1))
    read_as = {each for each in characters if set(unicodedata.normalize("NFKD", each)) & set("<[&")}

    assert {each for each in read_as if not _OPENER.search(each)} == set()


def test_tags_that_clients_put_into_prompts_are_neutralized() -> None:
    clients = (claude_code, codex, copilot, cursor, gemini, opencode)

    for name in {name for client in clients for name in client.PROMPTS.injected}:
        assert neutralize(f"<{name}>x</{name}>") == f"‹{name}>x‹/{name}>"


def test_neutral_text_takes_time_in_proportion_to_its_length() -> None:
    """Each pattern is possessive or bounded. With backtracking, these texts would take hours."""
    size = 200_000
    for unit in (
        "<",
        "< ",
        "&",
        "&amp;",
        "<|a",
        "<skill ",
        "<permissions ",
        "&#1",
        "\u200d",
        "中<",
        "</",
        "[",
        "Human ",
    ):
        assert len(neutralize(unit * (size // len(unit)))) <= size + 1
    for text in (
        "<" + " " * size,
        "<skill" + " a" * size,
        "&#" + "1" * size,
        "<memory" + "\t" * size,
        "<|" + "a" * size,
    ):
        assert neutralize(text) == text


def test_a_fence_is_only_closed_at_its_end() -> None:
    text = fence([HOSTILE, f"- {HOSTILE}"])

    assert dangers(text) == []
    assert text.count(MARK) == 2


@pytest.mark.parametrize(
    ("reason", "shortened"),
    [
        ("no answer within 80 ms", "no answer within 80 ms"),
        ("http://127.0.0.1:9/a/b answers 503; is it running?", "http://127.0.0.1:9/a/b answers 503"),
        ("OSError: [Errno 13] Permission denied: '/etc/shop/key'", "OSError: [Errno 13] Permission denied: 'key'"),
        (r"C:\shop\state.json cannot be read", "state.json cannot be read"),
        ("~/shop/state.json cannot be read", "state.json cannot be read"),
        ("3 of 4 rows and/or lines", "3 of 4 rows and/or lines"),
    ],
)
def test_a_reason_for_an_agent_has_no_folder_and_no_remedy(reason: str, shortened: str) -> None:
    assert strip_remedy(reason) == shortened
