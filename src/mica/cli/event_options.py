"""The options by which commands choose events, and what of them to show."""

from __future__ import annotations

import functools
from collections.abc import Callable
from datetime import datetime
from typing import ParamSpec, cast

import click

from mica.cli.output import Moment, check_order
from mica.format.documents import BUNDLES, chosen
from mica.model.event import EventQuery

P = ParamSpec("P")


def field_options(function: Callable[P, None]) -> Callable[P, None]:
    """--fields and --bundle; the command gets `fields`, None when neither is given."""

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        bundle, listed = cast(str | None, kwargs.pop("bundle")), cast(tuple[str, ...], kwargs.pop("fields"))
        fields = [field.strip() for text in listed for field in text.split(",") if field.strip()]
        if listed and not fields:
            raise click.UsageError("--fields names no field; give some, as in id,context.agent,data.path")
        kwargs["fields"] = chosen(bundle=bundle, fields=fields) if bundle or fields else None
        function(*args, **kwargs)

    run = click.option(
        "--fields", multiple=True, metavar="FIELD,…", help="Only these, as in id,context.agent,data.path."
    )(run)
    return click.option("--bundle", type=click.Choice(list(BUNDLES)), help="Only the fields of this bundle.")(run)


def query_options(function: Callable[P, None]) -> Callable[P, None]:
    """What events must fit; the command gets an EventQuery without a limit as `asked`."""

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        errors = kwargs.pop("errors")
        check_order(cast(datetime | None, kwargs["since"]), cast(datetime | None, kwargs["until"]))
        kwargs["asked"] = EventQuery(
            session=cast(str | None, kwargs.pop("session")),
            agent=cast(str | None, kwargs.pop("agent")),
            user=cast(str | None, kwargs.pop("user")),
            names=cast(tuple[str, ...], kwargs.pop("names")),
            since=cast(datetime | None, kwargs.pop("since")),
            until=cast(datetime | None, kwargs.pop("until")),
            text=cast(str | None, kwargs.pop("text")),
            errors=True if errors else None,
            limit=None,
        )
        function(*args, **kwargs)

    for option in (
        click.option("--errors", is_flag=True, help="Only failures."),
        click.option("--text", help="With all of these words in data.text."),
        click.option("--until", type=Moment(), help="Before this time."),
        click.option("--since", type=Moment(), help="From this time on, or this long ago (2h, 3d)."),
        click.option("--name", "names", multiple=True, help="With this name; * and ? are wildcards, repeatable."),
        click.option("--user", help="Of this user."),
        click.option("--agent", help="Of this agent."),
        click.option("--session", help="Of this session."),
    ):
        run = option(run)
    return run
