"""Charts as SVG, without a library or a script.

`lines` and `bars` return complete pictures, with colours for light and dark backgrounds. `columns`, `timeline` and
`treemap` return parts of a page: their shapes have class names, which the style sheet of the page colours.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape
from itertools import count

import msgspec

WIDTH, HEIGHT = 640, 280
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 52, 40
TICKS = 4
SPAN_SHARE_MIN = 1e-9  # of the largest value; values that are closer together are drawn as one


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """The points of one line of a chart, and the name of the line in the legend."""

    name: str
    points: Sequence[tuple[float, float]]
    dots: bool = False  # single points instead of a line
    dashed: bool = False


class ChartFrame(msgspec.Struct, frozen=True, kw_only=True):
    """The ranges of values on both axes of a chart."""

    x: tuple[float, float]
    y: tuple[float, float]

    def place(self, x: float, y: float) -> tuple[float, float]:
        """Return the coordinates in the picture of the point with these values."""
        return (
            LEFT + (x - self.x[0]) / (self.x[1] - self.x[0]) * (WIDTH - LEFT - RIGHT),
            HEIGHT - BOTTOM - (y - self.y[0]) / (self.y[1] - self.y[0]) * (HEIGHT - TOP - BOTTOM),
        )


def lines(title: str, series: Sequence[Series], *, across: str, up: str) -> str:
    """Return an SVG chart of lines or points. If no series has a point, the chart shows a note instead.

    `across` and `up` are the labels of the horizontal and the vertical axis.
    """
    points = [point for each in series for point in each.points]
    if not points:
        return _svg(title, [_text(WIDTH / 2, HEIGHT / 2, "nothing to show yet", "middle")])
    frame = ChartFrame(
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
    """Return an SVG chart of horizontal bars, each with its name and its value in `unit`."""
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


# -- Parts of a page ----------------------------------------------------------------------------------------------

PART_WIDTH, PART_HEIGHT = 960, 260
TILES_HEIGHT, TILE_HEADER, TILE_GAP = 400, 20, 3
TILE_MIN = 3.0  # a narrower tile could not be seen
LETTER = 6.3  # average width of a letter at 11 px; a label that is too long is cut


class Column(msgspec.Struct, frozen=True, kw_only=True):
    """One column of a chart: its label, the sizes of its stacked parts, and the height of the line above it."""

    label: str
    parts: Sequence[int]
    line: int  # the value of the line at this column


class Dot(msgspec.Struct, frozen=True, kw_only=True):
    """One point of a timeline."""

    after_s: float  # seconds since the start of the timeline
    row: int  # the index of its row
    title: str  # shown as a tooltip
    kind: str  # class names
    radius: float = 4.5


class Tile(msgspec.Struct, frozen=True, kw_only=True):
    """A rectangle of a treemap. A tile with children is drawn as a group with a header."""

    name: str
    value: float
    title: str = ""  # shown as a tooltip
    shade: float | None = None  # the strength of its colour, 0 to 1; None for a neutral colour
    href: str = ""  # the address that the header of a group links to
    children: tuple[Tile, ...] = ()


class Box(msgspec.Struct, frozen=True):
    """A rectangle in the picture."""

    x: float
    y: float
    width: float
    height: float


def columns(title: str, values: Sequence[Column], *, parts: Sequence[tuple[str, str]], line: tuple[str, str]) -> str:
    """Return an SVG chart of stacked columns (scale on the right) and one line (scale on the left).

    `parts` has a pair for each part of a column, and `line` is the pair for the line: the name in the legend, and the
    CSS class.
    """
    left, right, top, bottom = 44.0, PART_WIDTH - 44.0, 30.0, PART_HEIGHT - 54.0
    step = (right - left) / max(1, len(values))
    centres = [left + step * (index + 0.5) for index in range(len(values))]
    line_top = _top(each.line for each in values)
    part_top = _top(sum(each.parts) for each in values)
    shapes = [_text(0, 14, line[0], "start"), _text(PART_WIDTH, 14, "in the week", "end")]
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        y = bottom - share * (bottom - top)
        shapes.append(f'<line class="grid" x1="{left}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>')
        shapes.append(_text(left - 8, y + 4, _figure(share * line_top), "end"))
        shapes.append(_text(right + 8, y + 4, _figure(share * part_top), "start"))
    points = [
        f"{x:.1f},{bottom - each.line / line_top * (bottom - top):.1f}" for x, each in zip(centres, values, strict=True)
    ]
    if points:
        area = f"{centres[0]:.1f},{bottom:.1f} {' '.join(points)} {centres[-1]:.1f},{bottom:.1f}"
        shapes.append(f'<polygon class="area {line[1]}" points="{area}"/>')
        shapes.append(f'<polyline class="{line[1]}" points="{" ".join(points)}"/>')
    for x, each in zip(centres, values, strict=True):
        shapes.append(
            _column(each, x, parts, width=min(18.0, step * 0.6), bottom=bottom, scale=(bottom - top) / part_top)
        )
        shapes.append(_text(x, bottom + 18, each.label, "middle"))
    shapes += _legend([line, *parts], y=PART_HEIGHT - 6)
    return _part(title, shapes, height=PART_HEIGHT)


def _column(
    column: Column, x: float, parts: Sequence[tuple[str, str]], *, width: float, bottom: float, scale: float
) -> str:
    counts = [f"{number} {name}" for number, (name, _) in zip(column.parts, parts, strict=True)]
    shapes = [f"<title>{escape(f'{column.label}: {column.line} known, ' + ', '.join(counts))}</title>"]
    y = bottom
    for number, (_, kind) in zip(column.parts, parts, strict=True):
        y -= number * scale
        if number:
            size = f'width="{width:.1f}" height="{number * scale:.1f}"'
            shapes.append(f'<rect class="fill {kind}" x="{x - width / 2:.1f}" y="{y:.1f}" {size}/>')
    return f"<g>{''.join(shapes)}</g>"


def timeline(title: str, dots: Sequence[Dot], *, rows: Sequence[str], width: int = 520) -> str:
    """Return an SVG timeline. Each dot is in its row; the later it is, the further it is to the right.

    `rows` has the labels of the rows, from top to bottom.
    """
    left, right, top = 64.0, width - 24.0, 20.0
    height = 54 + 46 * len(rows)
    bottom = height - 28.0
    span = max((dot.after_s for dot in dots), default=0.0) or 1.0
    ticks = _ticks(0.0, span)
    scale = (right - left) / max(span, ticks[-1] if ticks else 0.0)
    shapes = []
    for tick in ticks:
        x = left + tick * scale
        shapes.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{top - 12:.1f}" y2="{bottom:.1f}"/>')
        shapes.append(_text(x, bottom + 18, f"{_figure(tick)} s", "middle"))
    for index, name in enumerate(rows):
        shapes.append(_text(left - 14, top + 46 * index + 14, name, "end"))
    for dot in dots:
        place = f'cx="{left + dot.after_s * scale:.1f}" cy="{top + 46 * dot.row + 10:.1f}" r="{dot.radius}"'
        shapes.append(f'<circle class="fill {escape(dot.kind)}" {place}><title>{escape(dot.title)}</title></circle>')
    return _part(title, shapes, height=height, width=width)


def treemap(title: str, tiles: Sequence[Tile], *, height: int = TILES_HEIGHT) -> str:
    """Return an SVG treemap: nested rectangles with areas proportional to the values of the tiles."""
    return _part(title, _tiles(tiles, Box(0.0, 0.0, float(PART_WIDTH), float(height))), height=height)


def _tiles(tiles: Sequence[Tile], box: Box) -> list[str]:
    shapes: list[str] = []
    for tile, place in zip(tiles, squarify([tile.value for tile in tiles], box), strict=True):
        inner = Box(place.x, place.y, max(0.0, place.width - TILE_GAP), max(0.0, place.height - TILE_GAP))
        if min(inner.width, inner.height) < TILE_MIN:
            continue
        shapes.append(_group(tile, inner) if tile.children else _leaf(tile, inner))
    return shapes


def _group(tile: Tile, box: Box) -> str:
    """Return the SVG of a group: its name, and its tiles below. If the box is too flat, the name is left out."""
    size = f'width="{box.width:.1f}" height="{box.height:.1f}"'
    shapes = [f'<rect class="group" x="{box.x:.1f}" y="{box.y:.1f}" {size} rx="3"/>']
    header = TILE_HEADER if box.height > 2 * TILE_HEADER else 0
    if header and (label := _fit(tile.name, box.width - 8)):
        text = _text(box.x + 4, box.y + 14, label, "start")
        shapes.append(f'<a href="{escape(tile.href)}">{text}</a>' if tile.href else text)
    pad = TILE_GAP
    inside = Box(box.x + pad, box.y + (header or pad), box.width - pad, box.height - (header or pad))
    return "".join([*shapes, *_tiles(tile.children, inside)])


def _leaf(tile: Tile, box: Box) -> str:
    kind = "tile" if tile.shade is None else "tile shaded"
    style = "" if tile.shade is None else f' style="--shade:{100 * tile.shade:.0f}%"'
    size = f'width="{box.width:.1f}" height="{box.height:.1f}"'
    shapes = [f'<rect class="{kind}"{style} x="{box.x:.1f}" y="{box.y:.1f}" {size} rx="2"/>']
    if box.height >= 16 and (label := _fit(tile.name, box.width - 6)):
        on = "on-dark" if tile.shade is not None and tile.shade > 0.5 else ""
        shapes.append(_text(box.x + box.width / 2, box.y + box.height / 2 + 4, label, "middle", kind=on))
    return f"<g><title>{escape(tile.title or tile.name)}</title>{''.join(shapes)}</g>"


def squarify(values: Sequence[float], box: Box) -> list[Box]:
    """Divide a box into rectangles, one for each value, in order and nearly square.

    The areas of the rectangles are proportional to the values.
    """
    total = sum(values)
    if not values or total <= 0 or min(box.width, box.height) <= 0:
        return [Box(box.x, box.y, 0.0, 0.0) for _ in values]
    areas = [value / total * box.width * box.height for value in values]
    placed: list[Box] = []
    while areas:
        short = min(box.width, box.height)
        length = 1
        while length < len(areas) and _worst(areas[: length + 1], short) <= _worst(areas[:length], short):
            length += 1
        row, areas = areas[:length], areas[length:]
        box = _place_row(row, box, placed)
    return placed


def _worst(row: Sequence[float], short: float) -> float:
    """Return the largest ratio of sides of rectangles that are laid out in one row. It is 1.0 if all are squares.

    `row` has the areas of the rectangles, and `short` is the length of the row.
    """
    total = sum(row)
    if total <= 0 or min(row) <= 0 or short <= 0:
        return math.inf
    return max(short**2 * max(row) / total**2, total**2 / (short**2 * min(row)))


def _place_row(row: Sequence[float], box: Box, placed: list[Box]) -> Box:
    """Append one rectangle for each area in `row` to `placed`. The row is along the short side of the box.

    Returns the part of the box that is still free.
    """
    is_column = box.width >= box.height
    short, long = (box.height, box.width) if is_column else (box.width, box.height)
    total = sum(row)
    # The rest of a box may be so flat that rounding would push its row beyond the edge.
    depth = min(long, total / short) if short else 0.0
    at = 0.0
    for area in row:
        length = short * area / total if total else 0.0
        if is_column:
            placed.append(Box(box.x, box.y + at, depth, length))
        else:
            placed.append(Box(box.x + at, box.y, length, depth))
        at += length
    if is_column:
        return Box(box.x + depth, box.y, max(0.0, box.width - depth), box.height)
    return Box(box.x, box.y + depth, box.width, max(0.0, box.height - depth))


def _fit(text: str, width: float) -> str:
    """Return the text, cut so that its width in the picture is at most `width`; "" if not even three letters fit."""
    room = int(width / LETTER)
    return _short(text, room) if room >= min(3, len(text)) else ""


def _top(values: Iterable[int]) -> float:
    """Return the upper end of an axis for `values`: a round number that divides into four whole numbers."""
    most = max(values, default=0)
    quarters = (factor * 10.0**power for power in count() for factor in (1, 2, 3, 4, 5, 6, 8))
    return next(4 * quarter for quarter in quarters if 4 * quarter >= most)


def _legend(series: Sequence[tuple[str, str]], *, y: float) -> list[str]:
    x = PART_WIDTH / 2 - sum(30 + LETTER * len(name) for name, _ in series) / 2
    shapes = []
    for name, kind in series:
        shapes.append(f'<rect class="fill {kind}" x="{x:.1f}" y="{y - 9:.1f}" width="10" height="10" rx="2"/>')
        shapes.append(_text(x + 15, y, name, "start"))
        x += 30 + LETTER * len(name)
    return shapes


def _part(title: str, shapes: Sequence[str], *, height: int, width: int = PART_WIDTH) -> str:
    body = "".join(shapes)
    role = "group" if "<a " in body else "img"  # the role img hides links inside from screen readers
    named = f'role="{role}" aria-label="{escape(title)}"'
    return f'<svg class="chart" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" {named}>{body}</svg>'


# -- Shared -------------------------------------------------------------------------------------------------------


def _span(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    return (low, high) if high - low > SPAN_SHARE_MIN * max(1.0, abs(low), abs(high)) else (low, low + 1.0)


def _axes(frame: ChartFrame, *, across: str, up: str) -> list[str]:
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
    """Return a few round values from `low` to `high`."""
    rough = (high - low) / TICKS
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(size * factor for factor in (1, 2, 5, 10) if size * factor >= rough)
    step = max(step, 1.0) if high - low > 2 else step  # tasks and tokens are whole numbers
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
