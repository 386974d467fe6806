"""Parts of SQL statements that use an index even if planner estimates are wrong. $1 is the number of the space."""

from __future__ import annotations

from collections.abc import Sequence

from mica.model.event import EventQuery, microseconds

FEW = 50  # up to this many contexts or names are looked up one by one; more match so often that a scan is faster

# The number of the space as a subquery, for lookups of few rows. With a plain $1 the planner estimates the rows of this
# very space. It assumes that a space that has grown since the last ANALYZE is empty, and may choose any index that
# begins with the space, so that each lookup reads the whole space. With a subquery it uses the estimate of the schema.
HERE = "(SELECT $1::integer)"
AT_POSITIONS = "position = ANY ((SELECT $2::bigint[])::bigint[])"  # a subquery for the same reason
OF_WRITER = f"(SELECT id FROM writers WHERE space = {HERE} AND name = $2)"

# Forces an index lookup for each row. For a plain join the planner assumes that `at` and `position` are independent,
# expects almost no rows and reads the whole log; OFFSET 0 prevents that rewrite.
_AT = """CROSS JOIN LATERAL (
        SELECT * FROM events
        WHERE events.space = {here} AND events.at = {found}.at AND events.position = {found}.position OFFSET 0
    ) AS events"""
AT_KEYS = _AT.format(here=HERE, found="keys")
AT_FOUND = _AT.format(here=HERE, found="found")


def latest(
    query: EventQuery,
    *,
    contexts: Sequence[int] | None,
    names: Sequence[int] | None,
    terms: Sequence[int] | None,
) -> tuple[str, list[object]]:
    """Return the part of a SELECT after its columns that finds matching events, latest first; and its values from $2.

    `contexts`, `names` and `terms` are the row ids of the contexts, names and terms that match the query. None means
    that the query has no such condition.
    """
    values: list[object] = []

    def bound(value: object) -> str:
        values.append(value)
        return f"${len(values) + 1}"

    conditions = [f"events.space = {HERE}"]
    if query.since is not None:
        conditions.append(f"events.at >= {bound(microseconds(query.since))}")
    if query.until is not None:
        conditions.append(f"events.at < {bound(microseconds(query.until))}")
    if query.errors is not None:
        conditions.append(f"events.error = {bound(query.errors)}")
    if contexts is not None:
        conditions.append(f"events.context = ANY ({bound(contexts)}::integer[])")
    if names is not None:
        conditions.append(f"events.name = ANY ({bound(names)}::integer[])")
    where = " AND ".join(conditions)
    limit = f"{bound(None if query.limit is None else max(0, query.limit))}::bigint"

    if terms is not None:
        found = f"""SELECT texts.at, texts.position FROM postings
            JOIN texts ON texts.space = {HERE} AND texts.position = postings.position
            WHERE postings.space = {HERE} AND postings.term = ANY ({bound(terms)}::integer[])
            GROUP BY texts.at, texts.position HAVING count(*) = {len(terms)}
            ORDER BY texts.at DESC, texts.position DESC"""
        from_, by = f"({found}) AS found {AT_FOUND} WHERE {where}", "found"
    elif contexts is not None and len(contexts) <= FEW:
        from_, by = _each("context", bound(contexts), where, limit), "events"
    elif names is not None and len(names) <= FEW:
        from_, by = _each("name", bound(names), where, limit), "events"
    else:
        from_, by = f"events WHERE {where}", "events"
    return f"FROM {from_} ORDER BY {by}.at DESC, {by}.position DESC LIMIT {limit}", values


def _each(column: str, numbers: str, where: str, limit: str) -> str:
    """Return SQL that finds, for each row id in `numbers`, the latest `limit` events that have it in `column`."""
    return f"""unnest({numbers}::integer[]) AS wanted (number) CROSS JOIN LATERAL (
            SELECT * FROM events WHERE {where} AND events.{column} = wanted.number
            ORDER BY events.at DESC, events.position DESC LIMIT {limit}
        ) AS events"""
