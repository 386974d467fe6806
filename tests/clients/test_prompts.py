"""Separating typed words from inserted text."""

from __future__ import annotations

import pytest

from mica.clients.prompts import (
    Prompt,
    PromptFilter,
    SlashCommand,
    TypedPrompt,
    join_texts,
    parse_command,
    remove_element,
    text_of_prompt,
)

FILTER = PromptFilter(injected=("reminder", "context"), openings=("# AGENTS.md",))
MEMORY = '<memory from="mica" note="Recalled">\nauth is in src/auth.py\n</memory>'


@pytest.mark.parametrize(
    ("text", "prompt"),
    [
        ("Fix the login", TypedPrompt("Fix the login")),
        ("<reminder>be brief</reminder>Fix <context>cwd</context>the login", TypedPrompt("Fix the login")),
        (f"{MEMORY}\nFix the login", TypedPrompt("Fix the login")),
        ("/nav:auth focus on cookies", SlashCommand("nav:auth", "focus on cookies")),
        ("/clear", SlashCommand("clear", "")),
        ("/home/dev/a.py is broken", TypedPrompt("/home/dev/a.py is broken")),
        ("<reminder>only this</reminder>", None),
        (MEMORY, None),
        ("# AGENTS.md instructions", None),
        ("  \n", None),
    ],
)
def test_only_typed_words_remain(text: str, prompt: Prompt | None) -> None:
    """keeps: TC-11"""
    assert FILTER.typed(text) == prompt


def test_an_element_that_is_never_closed_was_typed() -> None:
    assert FILTER.typed("Why is <reminder> shown?") == TypedPrompt("Why is <reminder> shown?")


def test_a_client_without_slash_commands_has_only_text() -> None:
    assert PromptFilter(has_commands=False).typed("/status now") == TypedPrompt("/status now")


def test_a_prompt_is_written_as_it_was_typed() -> None:
    assert text_of_prompt(parse_command("/nav:auth focus")) == "/nav:auth focus"
    assert text_of_prompt(TypedPrompt("Fix it")) == "Fix it"


def test_every_element_of_a_name_is_removed_and_no_other() -> None:
    assert remove_element("a<x>1</x>b<y>2</y>c<x>3</x>", "x") == "ab<y>2</y>c"


def test_empty_texts_are_left_out_when_joined() -> None:
    assert join_texts(["a", None, "", "b"]) == "a\nb"
