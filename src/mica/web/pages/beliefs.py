"""The Beliefs page: what holds now, what ended, the history of each; and forms to correct, confirm, end and add."""

from __future__ import annotations

from typing import cast

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute

from mica.format.beliefs import HEADINGS
from mica.model.belief import BeliefKind, Ending, is_belief_id
from mica.model.mark import mark_of
from mica.web.memory_pool import memory_of, pool_of, requested_space
from mica.web.pages.templates import form, is_part, link, notice_headers, page, render
from mica.web.scopes import route
from mica.web.views import beliefs as view


def routes() -> list[BaseRoute]:
    return [
        route("/beliefs", beliefs, needs="read"),
        route("/beliefs/list", held, needs="read"),
        route("/beliefs/add", ask_to_add, needs="write"),
        route("/beliefs/add", add, needs="write", methods=["POST"]),
        route("/beliefs/{reference}", belief, needs="read"),
        route("/beliefs/{reference}/confirm", confirm, needs="write", methods=["POST"]),
        route("/beliefs/{reference}/end", ask_to_end, needs="write"),
        route("/beliefs/{reference}/end", end, needs="write", methods=["POST"]),
        route("/correct/{reference}", ask_to_correct, needs="write"),
        route("/correct/{reference}", correct, needs="write", methods=["POST"]),
    ]


@page
async def beliefs(request: Request) -> Response:
    kind = view.kind_of(request.query_params.get("kind"))
    shelf = await view.shelf(await memory_of(request), kind=kind)
    return render(request, "beliefs.html", shelf=shelf, kind=kind, kinds=HEADINGS)


@page
async def held(request: Request) -> Response:
    kind = view.kind_of(request.query_params.get("kind"))
    shelf = await view.shelf(await memory_of(request), kind=kind)
    return render(request, "parts/beliefs.html", shelf=shelf, kind=kind)


@page
async def belief(request: Request) -> Response:
    detail = await view.belief_detail(await memory_of(request), request.path_params["reference"])
    return render(request, "belief.html", detail=detail)


@page
async def ask_to_add(request: Request) -> Response:
    return render(request, "parts/add_belief.html", kinds=HEADINGS)


@page
async def add(request: Request) -> Response:
    fields = await form(request)
    kind = cast(BeliefKind, fields.get("kind", ""))  # memory refuses another word
    added = await (await memory_of(request)).beliefs.add(kind, fields.get("text", ""))
    return _done(request, f"Added; this {added.kind} holds now", added.id)


@page
async def confirm(request: Request) -> Response:
    memory = await memory_of(request)
    confirmed = await memory.beliefs.confirm(request.path_params["reference"])
    return _done(request, f"Confirmed; it is {confirmed.state}", confirmed.id)


@page
async def ask_to_end(request: Request) -> Response:
    detail = await view.belief_detail(await memory_of(request), request.path_params["reference"])
    return render(request, "parts/end_belief.html", row=detail.row)


@page
async def end(request: Request) -> Response:
    memory = await memory_of(request)
    fields = await form(request)
    ending = cast(Ending, fields.get("ending") or "withdrawn")  # memory refuses another word
    ended = await memory.beliefs.end(request.path_params["reference"], reason=fields.get("reason", ""), ending=ending)
    return _done(request, "Ended; briefs no longer show it", ended.id)


@page
async def ask_to_correct(request: Request) -> Response:
    """Show the form with the current text of a belief or a mark."""
    memory, reference = await memory_of(request), request.path_params["reference"]
    if is_belief_id(reference):
        text = (await memory.beliefs.get(reference)).text
    else:
        text = mark_of(await memory.events.get(reference)).text
    return render(request, "parts/correct.html", reference=reference, text=text)


@page
async def correct(request: Request) -> Response:
    memory = await memory_of(request)
    corrected = await memory.correct(request.path_params["reference"], (await form(request)).get("text", ""))
    stated = await memory.beliefs.of_events([corrected])
    return _done(request, "Corrected; the old text stays in the history only", stated[0].id if stated else None)


def _done(request: Request, notice: str, belief: str | None) -> Response:
    """Answer a form: a notice for htmx, which reloads the lists; a redirect for a browser without JavaScript."""
    if is_part(request):
        return render(
            request, "parts/done.html", headers=notice_headers(notice, "mica:belief", "mica:crystal", "mica:work")
        )
    space = requested_space(request)
    shown = f"/beliefs/{belief}" if belief else "/beliefs"
    return RedirectResponse(link(shown, space=space if space != pool_of(request).default else None), status_code=303)
