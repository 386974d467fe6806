"""Render a replay as SVG charts, as sentences, or as one self-contained HTML page."""

from __future__ import annotations

from html import escape
from itertools import accumulate

from mica.format.charts import Series, bars, lines
from mica.format.lines import plural
from mica.navigation.replay import Replay, ReplayTask

BASELINES_SHOWN = 12
ROWS_SHOWN = 500  # tasks on the page; `mica trails replay --json` prints all

PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>mica trails replay</title>
<style>
:root {{ color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif }}
body {{ max-width: 70rem; margin: 2rem auto; padding: 0 1rem }}
.charts {{ display: grid; grid-template-columns: repeat(auto-fit, minmax(28rem, 1fr)); gap: 1rem }}
table {{ border-collapse: collapse; width: 100% }}
th, td {{ text-align: right; padding: .25rem .5rem; border-bottom: 1px solid #8884; vertical-align: top }}
th:nth-child(-n+3), td:nth-child(-n+3) {{ text-align: left }}
td:nth-child(-n+3) {{ overflow-wrap: anywhere }}
td:first-child {{ min-width: 18rem }}
.loss {{ color: #c2572b }} .gain {{ color: #3a8a57 }}
</style>
<h1>{verdict}</h1>
<p>{facts}</p>
<div class="charts">{charts}</div>
<h2>Task by task</h2>
<table><thead><tr><th>prompt<th>offered<th>needed<th>calls<th>seconds<th>tokens<th>cost<th>saved<th>net</tr></thead>
<tbody>
{rows}
</tbody></table>
</html>
"""


def draw_charts(replay: Replay) -> dict[str, str]:
    """Draw the charts of a replay as SVG, by name: "net", "calibration" and "baseline"."""
    careful = list(accumulate(row.net_tokens for row in replay.rows))
    generous = list(accumulate(row.saved_generous - row.cost_tokens for row in replay.rows))
    return {
        "net": lines(
            "Net tokens, task after task",
            [
                Series(name="careful", points=list(enumerate(map(float, careful), 1))),
                Series(name="generous", points=list(enumerate(map(float, generous), 1)), dashed=True),
            ],
            across="task",
            up="tokens saved less tokens shown",
        ),
        "calibration": lines(
            "Predicted probability and actual share",
            [
                Series(name="files", points=[(each.mean, each.true) for each in replay.bins], dots=True),
                Series(name="perfect", points=[(0.0, 0.0), (1.0, 1.0)] if replay.bins else [], dashed=True),
            ],
            across="predicted probability",
            up="share that was needed",
        ),
        "baseline": bars(
            "Before the first edit, by kind of task (median)",
            [
                (f"{baseline.shape} ({baseline.tasks})", float(baseline.median_tokens))
                for baseline in replay.baselines[:BASELINES_SHOWN]
            ],
            unit="tokens",
        ),
    }


def render_page(replay: Replay) -> str:
    """Render one HTML page with the verdict, the charts and the latest 500 tasks."""
    left_out = len(replay.rows) - ROWS_SHOWN
    rows = [_row(row) for row in replay.rows[-ROWS_SHOWN:]]
    if left_out > 0:
        rows.insert(
            0, f"<tr><td colspan=9>{left_out:,} earlier tasks are in <code>mica trails replay --json</code></tr>"
        )
    return PAGE.format(
        verdict=escape(replay.verdict),
        facts="<br>".join(map(escape, describe(replay))),
        charts="".join(draw_charts(replay).values()),
        rows="\n".join(rows),
    )


def describe(replay: Replay) -> list[str]:
    """Describe the figures of a replay in sentences, including losses; empty without tasks."""
    if not replay.rows:
        return []
    searches = "1 search" if replay.saved_calls == 1 else f"{replay.saved_calls:,} searches"
    gain, lose = "gains" if replay.winning == 1 else "gain", "loses" if replay.losing == 1 else "lose"
    saved = (
        f"Offers cost {plural(replay.cost_tokens, 'token')} and save {replay.saved_tokens:,} in {searches}; "
        f"{plural(replay.winning, 'task')} {gain}, {replay.losing:,} {lose}."
    )
    if replay.saved_generous != replay.saved_tokens:
        saved += f" They save {replay.saved_generous:,} if a task whose files were all offered needs no search at all."
    sentences = [
        f"{_describe_tasks(len(replay.rows))} took {replay.navigation_tokens:,} tokens before the first edit.",
        f"{replay.offered_tasks:,} would have had an offer; {replay.hits:,} of them needed an offered file.",
        saved,
    ]
    if replay.dollars is not None:
        verb = "has" if replay.unpriced == 1 else "have"
        priced = f"; {plural(replay.unpriced, 'task')} {verb} no known price" if replay.unpriced else ""
        sentences.append(f"Net in dollars, by prices of {replay.prices_at}: {replay.dollars:+.4f}{priced}.")
    else:
        sentences.append("Dollars are unknown: no price is known for the models of these tasks.")
    if replay.recall_10 is not None:
        sentences.append(f"Of the files a task needed, {replay.recall_10:.0%} are among the first ten guesses.")
    if replay.error is not None:
        sentences.append(f"Mean error of the probabilities: {replay.error:.3f}.")
    return sentences


def _describe_tasks(count: int) -> str:
    return "1 task (a prompt)" if count == 1 else f"{count:,} tasks (one for each prompt that led to work)"


def _row(row: ReplayTask) -> str:
    offered = ", ".join(guess.path for guess in row.offered) or "–"
    kind = "gain" if row.net_tokens > 0 else "loss" if row.net_tokens < 0 else ""
    cells = [
        escape(row.prompt[:160] + ("…" if len(row.prompt) > 160 else "")),
        escape(offered),
        escape(", ".join(row.needed[:8]) + (" …" if len(row.needed) > 8 else "")),
        f"{row.spent.calls:,}",
        f"{row.spent.seconds:,.0f}",
        f"{row.spent.tokens:,}",
        f"{row.cost_tokens:,}",
        f"{row.saved_tokens:,}",
    ]
    return "<tr>" + "".join(f"<td>{cell}" for cell in cells) + f'<td class="{kind}">{row.net_tokens:+,}</tr>'
