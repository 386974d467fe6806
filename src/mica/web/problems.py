"""Errors as problem documents (RFC 9457): one status for each error class, and its attributes as `facts`.

`type` ends in the name of the class, so that a client can raise the same error.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus

import msgspec
from starlette.responses import Response

from mica import errors
from mica.errors import MicaError
from mica.store.remote.wire import PROBLEMS

MEDIA_TYPE = "application/problem+json"

# An error has the status of its nearest base class in this table.
STATUSES: dict[type[MicaError], int] = {
    MicaError: 500,
    errors.InvalidInput: 422,  # well-formed but not usable; a malformed request is 400
    errors.ReservedForUser: 403,
    errors.UnknownEvent: 404,
    errors.UnknownSpace: 404,
    errors.UnknownTrail: 404,
    errors.DuplicateEvent: 409,
    errors.ClaimLost: 409,
    errors.Backlogged: 503,
    errors.ModelError: 502,
    errors.NoModel: 422,
    errors.PromptTooLong: 422,
    errors.BudgetExceeded: 422,
    errors.StoreError: 503,
    errors.StoreFull: 507,
    errors.AccessDenied: 403,
}


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The body of an error response: why a request failed."""

    type: str
    title: str
    status: int
    detail: str
    facts: dict[str, object] = {}  # attributes of the error: ids, names, numbers


def status_of(error: MicaError) -> int:
    return next(STATUSES[kind] for kind in type(error).__mro__ if kind in STATUSES)


def problem(status: int, detail: str, *, kind: str = "", facts: Mapping[str, object] | None = None) -> Problem:
    """Build a problem document; `kind` is the name of one of our error classes."""
    return Problem(
        type=f"{PROBLEMS}{kind}" if kind else "about:blank",
        title=HTTPStatus(status).phrase,
        status=status,
        detail=detail,
        facts=dict(facts or {}),
    )


def error_problem(error: MicaError) -> Problem:
    """Build the problem document of one of our errors, with its attributes as `facts`."""
    facts = {name: value for name, value in vars(error).items() if isinstance(value, str | int | float | bool | None)}
    return problem(status_of(error), str(error), kind=type(error).__name__, facts=facts)


def problem_response(problem: Problem, headers: Mapping[str, str] | None = None) -> Response:
    body = msgspec.json.encode(problem)
    return Response(body, status_code=problem.status, media_type=MEDIA_TYPE, headers=headers)
