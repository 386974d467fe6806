"""The page Sources."""

from __future__ import annotations

import html
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import httpx2
from tests.sources.scripted_sources import declared
from tests.web.pages.dashboard import page

from mica.model.event import utc_now
from mica.sources.protocol import Concept, Question


async def test_the_example_source_on_the_empty_page_works(client: httpx2.AsyncClient, tmp_path: Path) -> None:
    text = await page(client, "/sources/declared")
    shown = re.search(r"<pre>(.*?)</pre>", text, re.DOTALL)
    assert shown is not None
    with closing(sqlite3.connect(tmp_path / "reviews.db")) as connection, connection:
        connection.execute("CREATE TABLE reviews (id TEXT, verdict TEXT, note TEXT)")
        connection.execute("INSERT INTO reviews VALUES ('abc123', 'GROWL', 'no types')")

    sources = declared(html.unescape(shown[1]), folder=tmp_path)
    (found,) = await sources["reviews"].fragments(
        Question(concept=Concept.parse("judgment:code_review:abc123"), now=utc_now())
    )
    await sources.close()

    assert (found.key, found.value, found.text) == ("verdict", "GROWL", "GROWL: no types")
    assert "mica/config.toml" in text
