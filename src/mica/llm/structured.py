"""Asks a model for an answer of a given Python type, with a JSON schema. The model may correct an invalid answer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

import msgspec

from mica.errors import InvalidAnswer, PromptTooLong
from mica.llm.protocol import LLM, Answer, ModelMessage, Request
from mica.redact import redact

T = TypeVar("T")
EXCERPT_CHARACTERS = 160
REPEATED_CHARACTERS = 80  # an answer that begins with this much of the prompt only repeats it
_FENCED = re.compile(r"```(?:json)?\s*\n(.*?)\n?\s*```", re.DOTALL)
_ERROR = re.compile(r"^\W{0,3}(?:error|exception|traceback|internal server error|rate limit)\b", re.IGNORECASE)


class Structured(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """A validated value, and the answers of the model that led to it: one, or two if the first one was invalid."""

    value: T
    answers: tuple[Answer, ...]


async def ask_for(
    llm: LLM, kind: type[T], request: Request, *, schema: Mapping[str, Any] | None = None
) -> Structured[T]:
    """Ask a model for a value of the type `kind`. `schema` replaces the JSON schema that is derived from the type.

    If the answer is invalid, the model is asked once to correct it. Raises InvalidAnswer, with the reason, if the
    second answer is invalid, too.
    """
    request = msgspec.structs.replace(request, schema=schema or schema_of(kind))
    first = await llm.ask(request)
    try:
        return Structured(value=parse_answer(first, kind, request), answers=(first,))
    except InvalidAnswer as error:
        invalid = error
    correction = (
        ModelMessage(role="assistant", text=first.text or "(nothing)"),
        ModelMessage(text=f"This cannot be used: {invalid.reason}. Answer again, with the JSON value only."),
    )
    try:
        again = await llm.ask(msgspec.structs.replace(request, messages=(*request.messages, *correction)))
    except PromptTooLong:
        raise invalid from None  # the correction does not fit the window
    return Structured(value=parse_answer(again, kind, request), answers=(first, again))


def parse_answer(answer: Answer, kind: type[T], request: Request) -> T:
    """Parse an answer as a value of the type `kind`. Raises InvalidAnswer, with the reason, if that is impossible.

    `request` is the request that was answered; it is used to find out why the answer is invalid.
    """
    text = answer.text.strip()
    found = _json_in(text)
    try:
        return msgspec.json.decode(found if found is not None else text, type=kind)
    except msgspec.MsgspecError as error:
        reason = _describe_failure(text, answer, request, found, error)
        excerpt = redact(text[:EXCERPT_CHARACTERS])
        shown = f"{reason}, beginning {excerpt!r}" if excerpt else reason
        raise InvalidAnswer(answer.model, shown, answer.text) from error


def schema_of(kind: type[object]) -> dict[str, Any]:
    """Return the JSON schema of a type, with each reference replaced by its definition.

    Small models do not follow references.
    """
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
    """Return the JSON in an answer, without the code fence and remarks around it; None if there is no JSON."""
    if fenced := _FENCED.search(text):
        return fenced[1]
    start, end = text.find("{"), text.rfind("}")
    return text[start : end + 1] if 0 <= start < end else None


def _describe_failure(
    text: str, answer: Answer, request: Request, found: str | None, error: msgspec.MsgspecError
) -> str:
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
