"""Charts as SVG: a few plain shapes, readable on light and on dark ground, without a library or a script."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

import msgspec

WIDTH, HEIGHT = 640, 280
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 52, 40
TICKS = 4
SPAN_SHARE_MIN = 1e-9  # of the values: what lies closer together is one value


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """Points of one line, with the name it is called by."""

    name: str
    points: Sequence[tuple[float, float]]
    dots: bool = False  # single points instead of a line
    dashed: bool = False


class Frame(msgspec.Struct, frozen=True, kw_only=True):
    """From values to places on the picture."""

    x: tuple[float, float]
    y: tuple[float, float]

    def place(self, x: float, y: float) -> tuple[float, float]:
        return (
            LEFT + (x - self.x[0]) / (self.x[1] - self.x[0]) * (WIDTH - LEFT - RIGHT),
            HEIGHT - BOTTOM - (y - self.y[0]) / (self.y[1] - self.y[0]) * (HEIGHT - TOP - BOTTOM),
        )


def lines(title: str, series: Sequence[Series], *, across: str, up: str) -> str:
    """A chart of lines or points; without any point it says so."""
    points = [point for each in series for point in each.points]
    if not points:
        return _svg(title, [_text(WIDTH / 2, HEIGHT / 2, "nothing to show yet", "middle")])
    frame = Frame(
        x=_span([x for x, _ in points]),
        y=_span([0.0, *(y for _, y in points)]),
    )
    parts = _axes(frame, across=across, up=up)
    for index, each in enumerate(series):
        placed = [frame.place(x, y) for x, y in each.points]
        kind = f"s{index % 3}"
        if each.dots:
            parts += [f'<circle class="{kind} dot" cx="{x:.1f}" cy="{y:.1f}" r="4"/>' for x, y in placed]
        else:
            path = " ".join(f"{x:.1f},{y:.1f}" for x, y in placed)
            parts.append(f'<polyline class="{kind}{" dashed" if each.dashed else ""}" points="{path}"/>')
        if len(series) > 1:
            parts.append(_text(WIDTH - RIGHT - 90 * (len(series) - 1 - index), 34, each.name, "end", kind=kind))
    return _svg(title, parts)


def bars(title: str, values: Sequence[tuple[str, float]], *, unit: str) -> str:
    """A chart of bars that lie, longest name and figure beside each."""
    if not values:
        return _svg(title, [_text(WIDTH / 2, HEIGHT / 2, "nothing to show yet", "middle")])
    most = max(value for _, value in values) or 1.0
    begin = 180
    parts: list[str] = []
    for index, (name, value) in enumerate(values):
        y = 30 + 22 * index
        width = value / most * (WIDTH - begin - 110)
        parts.append(_text(begin - 8, y + 12, _short(name, 26), "end"))
        parts.append(f'<rect class="s0 bar" x="{begin}" y="{y}" width="{width:.1f}" height="15" rx="2"/>')
        parts.append(_text(begin + width + 6, y + 12, f"{value:,.0f} {unit}", "start"))
    return _svg(title, parts, height=44 + 22 * len(values))


def _span(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    return (low, high) if high - low > SPAN_SHARE_MIN * max(1.0, abs(low), abs(high)) else (low, low + 1.0)


def _axes(frame: Frame, *, across: str, up: str) -> list[str]:
    parts = [_text(WIDTH / 2, HEIGHT - 6, across, "middle"), _text(8, 34, up, "start")]
    for y in _ticks(*frame.y):
        left, at = frame.place(frame.x[0], y)
        kind = "grid" if y else "grid zero"
        parts.append(f'<line class="{kind}" x1="{left:.1f}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>')
        parts.append(_text(left - 6, at + 4, _figure(y), "end"))
    for x in _ticks(*frame.x):
        at, bottom = frame.place(x, frame.y[0])
        parts.append(_text(at, bottom + 16, _figure(x), "middle"))
    return parts


def _ticks(low: float, high: float) -> list[float]:
    """Round values within a span, a handful of them."""
    rough = (high - low) / TICKS
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(size * factor for factor in (1, 2, 5, 10) if size * factor >= rough)
    step = max(step, 1.0) if high - low > 2 else step  # tasks and tokens are counted, not measured
    return [step * index for index in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def _figure(value: float) -> str:
    if abs(value) >= 10_000:
        return f"{value / 1_000:,.0f} k"
    return f"{value:,.0f}" if abs(value) >= 10 or value == int(value) else f"{value:.2f}"


def _short(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _text(x: float, y: float, text: str, anchor: str, *, kind: str = "") -> str:
    name = f' class="{kind} name"' if kind else ""
    return f'<text{name} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#57606a}"
    ".title{font-weight:600;font-size:14px}"
    ".grid{stroke:#8886;stroke-width:.5}.zero{stroke-width:1.5}"
    "polyline{fill:none;stroke-width:2}.dashed{stroke-dasharray:5 4}"
    ".s0{stroke:#3b6fd4}.s1{stroke:#c2572b}.s2{stroke:#3a8a57}.dot,.bar{stroke:none}"
    ".s0.dot,.s0.bar,.s0.name{fill:#3b6fd4}.s1.dot,.s1.name{fill:#c2572b}.s2.dot,.s2.name{fill:#3a8a57}"
    ".name{stroke:none}"
    "@media(prefers-color-scheme:dark){text{fill:#adbac7}}"
)


def _svg(title: str, parts: Sequence[str], *, height: int = HEIGHT) -> str:
    named = f'role="img" aria-label="{escape(title)}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" {named}>',
            f"<title>{escape(title)}</title>",
            f"<style>{STYLE}</style>",
            f'<text class="title" x="8" y="16">{escape(title)}</text>',
            *parts,
            "</svg>",
        ]
    )
