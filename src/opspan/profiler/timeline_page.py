"""Draws a memory timeline as an HTML page with one SVG picture, in which the bytes of the categories are stacked areas.

The page loads no other files, and the size of the picture does not depend on the length of the recording. Each column
of the picture stands for a span of time, and shows the most memory in use during this span. So every peak is visible.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

import polars as pl

_COLUMNS = 1000  # the number of columns in the picture; a screen would not show more
_LEFT, _TOP, _WIDTH, _HEIGHT = 90, 20, 1000, 420
_TICKS = 5
_UNITS = ("KiB", "MiB", "GiB", "TiB")
_col = pl.col

# The colour of each category on light and on dark pages.
_COLOURS = {
    "parameter": ("#1b7837", "#5aae61"),
    "optimizer_state": ("#b8860b", "#e6c34c"),
    "input": ("#333333", "#dddddd"),
    "temporary": ("#8e6bbf", "#b79ae0"),
    "activation": ("#c0392b", "#e8746a"),
    "gradient": ("#1f4fa3", "#6d9be8"),
    "autograd_detail": ("#4aa3c7", "#7fcbe8"),
    "unknown": ("#8a8a8a", "#777777"),
}


def page(used: pl.DataFrame, categories: Sequence[str], device: str) -> str:
    """Returns the HTML. `used` has the columns time_us and, for each category, the bytes in use from that time on."""
    total = pl.sum_horizontal(_col(name).clip(lower_bound=0) for name in categories)
    used = used.with_columns(_col("time_us") - _col("time_us").min(), total=total)
    peak = _number(used["total"].max())
    title = f"Memory of {device}: max allocated {size(peak)}"
    shown = [name for name in categories if used[name].max() or 0]
    light, dark = (
        "".join(f"--{name}: {_COLOURS[name][number]}; " for name in categories).rstrip() for number in (0, 1)
    )
    return f"""<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><title>{escape(title)}</title>
<style>
:root {{ --page: #ffffff; --text: #222222; --line: #cccccc; {light} }}
@media (prefers-color-scheme: dark) {{ :root {{ --page: #16181c; --text: #dddddd; --line: #444444; {dark} }} }}
body {{ background: var(--page); color: var(--text); font: 14px sans-serif; margin: 1.5em; }}
h1 {{ font-size: 1.2em; }}
svg {{ width: 100%; max-width: 1400px; height: auto; }}
svg text {{ fill: var(--text); font-size: 13px; }}
svg line {{ stroke: var(--line); }}
li {{ display: inline-block; margin-right: 1.5em; }}
ul {{ padding: 0; }}
li span {{ display: inline-block; width: 1em; height: 1em; margin-right: 0.4em; vertical-align: middle; }}
</style></head>
<body>
<h1>{escape(title)}</h1>
<ul>{"".join(f'<li><span style="background: var(--{name})"></span>{name.upper()}</li>' for name in shown)}</ul>
{_picture(used, shown, peak, title)}
</body>
</html>
"""


def size(count: float) -> str:
    """Returns a number of bytes with a unit, such as 1.50 MiB."""
    if count < 1024:
        return f"{count:.0f} B"
    power = min(int(math.log(count, 1024)), len(_UNITS))
    return f"{count / 1024**power:.2f} {_UNITS[power - 1]}"


def _picture(used: pl.DataFrame, shown: Sequence[str], peak: float, title: str) -> str:
    lasted_us = _number(used["time_us"].max())
    points = _points(used, lasted_us)
    height = _TOP + _HEIGHT
    parts = [
        f'<svg viewBox="0 0 {_LEFT + _WIDTH + 20} {height + 50}" role="img">',
        f"<title>{escape(title)}</title>",
    ]
    below = pl.Series([0] * points.height, dtype=pl.Int64)
    for name in shown:
        above = below + points[name].clip(lower_bound=0)
        parts.append(f'<path fill="var(--{name})" d="{_area(points["column"], below, above, peak)}"/>')
        below = above
    for tick in range(_TICKS + 1):
        x, y = _LEFT + _WIDTH * tick / _TICKS, height - _HEIGHT * tick / _TICKS
        parts.append(f'<line x1="{_LEFT - 5}" y1="{y:g}" x2="{_LEFT}" y2="{y:g}"/>')
        parts.append(f'<text x="{_LEFT - 10}" y="{y + 4:g}" text-anchor="end">{size(peak * tick / _TICKS)}</text>')
        parts.append(f'<line x1="{x:g}" y1="{height}" x2="{x:g}" y2="{height + 5}"/>')
        ms = lasted_us * tick / _TICKS / 1000
        parts.append(f'<text x="{x:g}" y="{height + 22}" text-anchor="middle">{ms:,.3f}</text>')
    parts.append(f'<text x="{_LEFT + _WIDTH / 2:g}" y="{height + 44}" text-anchor="middle">Time (ms)</text>')
    return "\n".join([*parts, "</svg>"])


def _points(used: pl.DataFrame, lasted_us: float) -> pl.DataFrame:
    """Returns, for each column of the picture that has an event, the moment with the most memory in use."""
    column = (_col("time_us") * (_COLUMNS - 1) // max(int(lasted_us), 1)).alias("column")
    return used.with_columns(column).sort("total", maintain_order=True).unique("column", keep="last").sort("column")


def _area(columns: pl.Series, below: pl.Series, above: pl.Series, peak: float) -> str:
    """Returns an SVG path with steps, because the memory in use stays constant until the next event."""
    scale = _HEIGHT / max(peak, 1)
    xs = [_LEFT + column * _WIDTH / _COLUMNS for column in [*columns, _COLUMNS]]
    upper = [_TOP + _HEIGHT - value * scale for value in above]
    lower = [_TOP + _HEIGHT - value * scale for value in below]
    there = [f"{x:.1f},{y:.1f}" for row, y in enumerate(upper) for x in xs[row : row + 2]]
    back = [f"{x:.1f},{y:.1f}" for row, y in reversed([*enumerate(lower)]) for x in reversed(xs[row : row + 2])]
    return f"M{' L'.join([*there, *back])}Z" if there else ""


def _number(value: object) -> float:
    return value if isinstance(value, (int, float)) else 0
