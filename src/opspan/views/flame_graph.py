"""A flame graph as one SVG: a graph of host time and a graph of device time, each only if there is such time. The
outermost frames are at the top.

Any viewer of SVG can show the file, because it has no script. The tooltip of a box says what the box is and how long it
took. Each kind of box has a colour of the palette by Okabe and Ito, which colour-blind people can tell apart; the
legend names the kinds. Each box is a separate <svg> element, so a text that is wider than its box is cut off.

`write_samples` draws one graph, that of samples of processors (sampled_stacks.py).
"""

from __future__ import annotations

import textwrap
import xml.etree.ElementTree as ET
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from opspan.analysis import Analysis
from opspan.analysis.functions import MODULE
from opspan.analysis.line_stacks import FUNCTION
from opspan.analysis.stacks import totals
from opspan.printable import plural, printable, shortened
from opspan.text_columns import cut
from opspan.views.fields import time_text
from opspan.views.icicle import Box, Icicle, icicle
from opspan.views.merged_stacks import stack_tree
from opspan.views.sampled_stacks import NATIVE, sampled_stacks
from opspan.views.stacks import no_time

WIDTH = 1200
_MARGIN, _ROW, _LINE = 10, 18, 20  # in pixels
_INNER = WIDTH - 2 * _MARGIN
_CHARACTER = 7.3  # width of a character in pixels: 0.602 of the font size (12) in the widest common font, rounded up
_PADDING = 3
_LONGEST_NAME = 500  # maximum length of a name in a tooltip
_LEAST_TEXT = 6  # in characters: a name that is cut to fewer cannot be recognised, so it is not shown
_TIMES = {"Host time": ("host_ns", ".stacks"), "Device time": ("device_ns", ".device.stacks")}
_NS = "data-ns"


@dataclass(frozen=True)
class Group:
    name: str
    title: str
    fill: str
    ink: str = "#000000"


GROUPS = (
    Group("place", "process, thread", "#bdbdbd"),
    Group("function", "Python function", "#f0e442"),
    Group("module", "module", "#cc79a7"),
    Group("op", "op", "#56b4e9"),
    Group("backward", "op of a backward", "#e69f00"),
    Group("range", "other range", "#009e73"),
    Group("kernel", "kernel, graph", "#d55e00"),
    Group("copy", "copy, fill", "#0072b2", "#ffffff"),
    # The palette has no further colour, and no graph has both native functions and kernels.
    Group("native", "native function", "#d55e00"),
    Group("merged", "smaller ones, merged", "none"),
)
_BY_NAME = {group.name: group for group in GROUPS}
_OF_KIND = {
    FUNCTION: "function",
    "module": "module",
    "op": "op",
    "backward": "backward",
    "engine": "backward",
    "kernel": "kernel",
    "graph": "kernel",
    "memcpy": "copy",
    "memset": "copy",
    NATIVE: "native",
}
_STYLE = "\n".join(
    [
        "",
        "text{font:12px ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:#000000}",
        ".page{fill:#ffffff}.said,.merged text{fill:#1a1a1a}",
        "rect{stroke:#ffffff;stroke-width:1}.page{stroke:none}",
        *(f".{group.name} rect{{fill:{group.fill}}}" for group in GROUPS),
        *(f".{group.name} text{{fill:{group.ink}}}" for group in GROUPS if group.ink != "#000000"),
        ".merged rect{stroke:#757575;stroke-dasharray:3 2}",
        ".box:hover rect{stroke:#000000}",
        "@media (prefers-color-scheme:dark){.page{fill:#16181d}.said,.merged text{fill:#e8e8e8}"
        "rect{stroke:#16181d}.merged rect{stroke:#9e9e9e}.box:hover rect{stroke:#ffffff}}",
        "",
    ]
)


@dataclass(frozen=True)
class TitledIcicle:
    title: str
    icicle: Icicle
    all_in: str  # the output that has all frames
    text: Callable[[float], str] = time_text  # how values are shown
    attribute: str = _NS  # of a box, for its value
    counted: str = "time"  # the noun for counts of boxes


def write(analysis: Analysis, path: Path) -> list[str]:
    trace = analysis.attributed
    tree = stack_tree(trace)
    graphs = [
        TitledIcicle(title, icicle(tree.stacks, tree.roots, column), suffix)
        for title, (column, suffix) in _TIMES.items()
    ]
    graphs = [graph for graph in graphs if graph.icicle.boxes]
    return _write(graphs, tree.left_out if graphs else [no_time(trace)], path)


def write_samples(analysis: Analysis, path: Path) -> list[str]:
    sampled = sampled_stacks(analysis)
    stacks = sampled.stacks()
    stacks = stacks.with_columns(count=totals(stacks["parent"], stacks["samples"]))
    boxes, all_in = icicle(stacks, sampled.roots, "weight"), ".stacks with --samples"
    if sampled.is_ns:
        graph = TitledIcicle(sampled.title, boxes, all_in, counted="sample")
    else:
        graph = TitledIcicle(sampled.title, boxes, all_in, "{:,}".format, "data-weight", "sample")
    return _write([graph], sampled.left_out, path)


def _write(graphs: Sequence[TitledIcicle], notes: Sequence[str], path: Path) -> list[str]:
    sentences = [*filter(None, map(_merged, graphs)), *notes]
    _svg(graphs, sentences).write(path, encoding="utf-8", xml_declaration=True)
    return sentences


def _merged(graph: TitledIcicle) -> str:
    if not graph.icicle.left_out:
        return ""
    return (
        f"{graph.title}: {graph.icicle.left_out:,} boxes of less than {graph.text(graph.icicle.least)} are merged into "
        f"those with dashed edges, or left out where these would be as narrow; {graph.all_in} has all of them"
    )


def _svg(graphs: Sequence[TitledIcicle], sentences: Sequence[str]) -> ET.ElementTree[ET.Element]:
    root = ET.Element("svg", xmlns="http://www.w3.org/2000/svg", role="img", width=str(WIDTH))
    titles = " and ".join(_inside_a_sentence(graph.title) for graph in graphs)
    ET.SubElement(root, "title").text = f"Flame graph: {titles or 'nothing to show'}"
    ET.SubElement(root, "style").text = _STYLE
    page = ET.SubElement(root, "rect", {"class": "page", "width": "100%", "height": "100%"})
    page.tail = "\n"
    y = _MARGIN
    if graphs:
        y = _legend(root, [box for graph in graphs for box in graph.icicle.boxes], y)
    for graph in graphs:
        _text(root, f"{graph.title}: {graph.text(graph.icicle.whole)}", y)
        y += _LINE
        for box in graph.icicle.boxes:
            _box(root, box, graph, y)
        y += graph.icicle.levels * _ROW + _LINE
    for sentence in sentences:
        for line in textwrap.wrap(printable(sentence), int(_INNER / _CHARACTER)):
            _text(root, line, y)
            y += _LINE
    root.set("height", str(y + _MARGIN))
    root.set("viewBox", f"0 0 {WIDTH} {y + _MARGIN}")
    return ET.ElementTree(root)


def _inside_a_sentence(title: str) -> str:
    return title if title[1].isupper() else title[0].lower() + title[1:]


def _legend(root: ET.Element, boxes: Sequence[Box], y: int) -> int:
    used = {_group(box) for box in boxes}
    x = float(_MARGIN)
    for group in GROUPS:
        if group.name not in used:
            continue
        width = len(group.title) * _CHARACTER + 2 * _PADDING
        _rectangle(root, group, x, width, y, group.title)
        x += width + _MARGIN
    return y + 2 * _LINE


def _group(box: Box) -> str:
    if box.merged:
        return "merged"
    if box.kind == FUNCTION and box.frame.startswith(MODULE):
        return "module"
    return "place" if box.kind is None else _OF_KIND.get(box.kind, "range")


def _box(root: ET.Element, box: Box, graph: TitledIcicle, y: int) -> None:
    group = _BY_NAME[_group(box)]
    name = f"{box.merged:,} smaller" if box.merged else printable(shortened(box.frame, _LONGEST_NAME))
    width = box.width * _INNER
    element = _rectangle(root, group, _MARGIN + box.x * _INNER, width, y + box.level * _ROW, name)
    element.set(graph.attribute, str(box.value))
    count = plural(box.count, graph.counted) if box.count > 1 else ""
    share = f"{100 * box.value / graph.icicle.whole:.1f}% of {_inside_a_sentence(graph.title)}"
    facts = [f"{graph.text(box.value)}, {share}", count, group.title]
    about = ET.Element("title")
    about.text = "\n".join([name, ", ".join(fact for fact in facts if fact)])
    element.insert(0, about)


def _rectangle(root: ET.Element, group: Group, x: float, width: float, y: int, text: str) -> ET.Element:
    place = {"x": f"{x:.2f}", "y": str(y), "width": f"{width:.2f}", "height": str(_ROW)}
    element = ET.SubElement(root, "svg", {"class": f"box {group.name}", **place})
    element.tail = "\n"
    ET.SubElement(element, "rect", width="100%", height="100%")
    if fits := fitting(text, width):
        ET.SubElement(element, "text", x=str(_PADDING), y=str(_ROW - 5)).text = fits
    return element


def fitting(text: str, width: float) -> str:
    """Cuts a text to the width of a box. Returns "" if too few characters would be left."""
    room = int((width - 2 * _PADDING + 1e-6) / _CHARACTER)
    return cut(text, room, cut_end=True) if room >= min(len(text), _LEAST_TEXT) else ""


def _text(root: ET.Element, text: str, y: int) -> None:
    line = ET.SubElement(root, "text", {"class": "said", "x": str(_MARGIN), "y": str(y + _ROW - 5)})
    line.text, line.tail = text, "\n"
