"""Answers of a given type: the model is told the schema, what it says is checked, and it may correct itself once."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

import msgspec

from mica.errors import InvalidAnswer, PromptTooLong
from mica.llm.protocol import LLM, Answer, Message, Request
from mica.redact import redact

T = TypeVar("T")
EXCERPT_CHARACTERS = 160
REPEATED_CHARACTERS = 80  # so much of the prompt, word for word, is no answer
_FENCED = re.compile(r"```(?:json)?\s*\n(.*?)\n?\s*```", re.DOTALL)
_ERROR = re.compile(r"^\W{0,3}(?:error|exception|traceback|internal server error|rate limit)\b", re.IGNORECASE)


class Structured(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """A checked value, and every answer that it took."""

    value: T
    answers: tuple[Answer, ...]


async def ask_for(
    llm: LLM, kind: type[T], request: Request, *, schema: Mapping[str, Any] | None = None
) -> Structured[T]:
    """A value of this type. `schema` may be narrower than the type's own, with limits and enumerations.

    Raises InvalidAnswer, which says what came back, when the second answer is no such value either.
    """
    request = msgspec.structs.replace(request, schema=schema or schema_of(kind))
    first = await llm.ask(request)
    try:
        return Structured(value=read(first, kind, request), answers=(first,))
    except InvalidAnswer as error:
        invalid = error
    correction = (
        Message(role="assistant", text=first.text or "(nothing)"),
        Message(text=f"This cannot be used: {invalid.reason}. Answer again, with the JSON value only."),
    )
    try:
        again = await llm.ask(msgspec.structs.replace(request, messages=(*request.messages, *correction)))
    except PromptTooLong:
        raise invalid from None  # there is no room to say what was wrong
    return Structured(value=read(again, kind, request), answers=(first, again))


def read(answer: Answer, kind: type[T], request: Request) -> T:
    """The value in an answer. Raises InvalidAnswer that names what is there instead."""
    text = answer.text.strip()
    found = _json_in(text)
    try:
        return msgspec.json.decode(found if found is not None else text, type=kind)
    except msgspec.MsgspecError as error:
        reason = _described(text, answer, request, found, error)
        excerpt = redact(text[:EXCERPT_CHARACTERS])
        shown = f"{reason}, beginning {excerpt!r}" if excerpt else reason
        raise InvalidAnswer(answer.model, shown, answer.text) from error


def schema_of(kind: type[object]) -> dict[str, Any]:
    """The JSON schema of a type in one piece: small models and grammars do not follow references."""
    schema = msgspec.json.schema(kind)
    definitions = schema.pop("$defs", {})

    def inlined(node: Any) -> Any:  # noqa: ANN401 JSON
        if isinstance(node, list):
            return [inlined(each) for each in node]
        if not isinstance(node, dict):
            return node
        if reference := node.get("$ref"):
            return inlined(definitions[reference.rpartition("/")[2]])
        return {key: inlined(value) for key, value in node.items()}

    whole: dict[str, Any] = inlined(schema)
    return whole


def _json_in(text: str) -> str | None:
    """The JSON of an answer that wraps it in a fence or in a remark; None if there is none."""
    if fenced := _FENCED.search(text):
        return fenced[1]
    start, end = text.find("{"), text.rfind("}")
    return text[start : end + 1] if 0 <= start < end else None


def _described(text: str, answer: Answer, request: Request, found: str | None, error: msgspec.MsgspecError) -> str:
    if not text:
        return "nothing came back"
    if not answer.is_whole:
        return f"the answer was cut off ({answer.finish}) after {answer.output_tokens:,} tokens"
    if any(text[:REPEATED_CHARACTERS] in message.text for message in request.messages if len(text) >= 20):
        return "the question came back"
    if _ERROR.match(text):
        return "an error text came back"
    if found is None:
        return "half a JSON value came back" if "{" in text or text.startswith("[") else "prose came back and no JSON"
    return f"JSON of another shape came back ({error})"
