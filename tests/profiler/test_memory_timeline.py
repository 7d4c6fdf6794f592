"""export_memory_timeline: torch's form of it where both watched the same run, and a page that stands alone."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from emit import running
from opspan.profiler.memory_timeline import CATEGORIES
from opspan.profiler.timeline_page import page, size
from profiler import training

pytest.importorskip("torch")

HEAD = """
import gzip, os, warnings
def raw(prof, name):
    prof.export_memory_timeline(name, device="cpu")
    return json.load(gzip.open(name))
"""


def told(code: str, cwd: Path) -> Any:
    return running.told(training.HEAD + HEAD + code, cwd=cwd)


@pytest.mark.slow
def test_what_was_taken_and_given_back_is_told_with_torchs_numbers_and_times(tmp_path: Path) -> None:
    ours, theirs = told(
        """
warnings.simplefilter("ignore")
train()
asked = dict(activities=CPU, record_shapes=True, profile_memory=True)
with torch.profiler.profile(**asked, with_stack=True) as theirs, profiler.profile(**asked) as ours:
    train()
print(json.dumps([raw(ours, "ours.raw.json.gz"), raw(theirs, "theirs.raw.json.gz")]))
""",
        tmp_path,
    )
    taken_or_given_back = [row for row in theirs if row[1] in (2, 4)]  # torch's others: was there, was written into
    assert [row[1:3] for row in ours] == [row[1:3] for row in taken_or_given_back]
    assert len(ours) > 40
    assert all(abs(mine[0] - other[0]) < 1e8 for mine, other in zip(ours, taken_or_given_back, strict=True))
    alike = [mine[3] == other[3] for mine, other in zip(ours, taken_or_given_back, strict=True)]
    assert sum(alike) > len(alike) / 2


@pytest.mark.slow
def test_sums_over_time_are_those_of_the_events(tmp_path: Path) -> None:
    told(
        """
train()
with profiler.profile(activities=CPU, profile_memory=True) as prof:
    train()
    kept = torch.ones(1000)
for name in ("a.json", "a.json.gz"):
    prof.export_memory_timeline(name, device="cpu")
times, sizes = json.load(open("a.json"))
assert [times, sizes] == json.load(gzip.open("a.json.gz"))
events = raw(prof, "a.raw.json.gz")
expected, sums = {}, [0] * 9
for time_ns, _, size, category in events:
    sums[category + 1] += size
    expected[time_ns // 1000] = list(sums)
assert dict(zip(times, sizes)) == expected
assert sum(sizes[-1]) >= 4000
assert {category for *_, category in events} >= {3, 4, 5, 6, 7}, events
print(1)
""",
        tmp_path,
    )


@pytest.mark.slow
def test_what_was_there_before_is_there_from_the_beginning(tmp_path: Path) -> None:
    told(
        """
with opspan.record(memory=True):
    before = torch.ones(1000)
with profiler.profile(activities=CPU, profile_memory=True) as prof:
    other = torch.ones(10)
    del before
prof.export_memory_timeline("a.json")
times, sizes = json.load(open("a.json"))
assert sizes == [[0] * 8 + [4000], [0] * 8 + [4040], [0] * 8 + [40]], sizes
assert times[0] == times[1] < times[2]
assert [row[:3] for row in raw(prof, "a.raw.json.gz")][0] == [-1, 1, 4000]
print(1)
""",
        tmp_path,
    )


def test_where_it_cannot_be_written_it_says_so_and_leaves_nothing(tmp_path: Path) -> None:
    told(
        """
with profiler.profile(activities=CPU, profile_memory=True) as prof:
    torch.ones(3)
os.mkdir("folder")
for bad in ("a.png", "folder/there/is/none.json", "folder/none/a.html", "folder"):
    try:
        prof.export_memory_timeline(bad)
    except opspan.errors.WriteError as error:
        assert bad in str(error)
    else:
        raise AssertionError(bad)
assert os.listdir(".") == ["folder"] and not os.listdir("folder")
try:
    profiler.profile(activities=CPU).export_memory_timeline("b.json")
except ValueError as error:
    assert "profile_memory=True" in str(error)
print(1)
""",
        tmp_path,
    )


def test_the_page_stands_alone(tmp_path: Path) -> None:
    told(
        """
with profiler.profile(activities=CPU, profile_memory=True) as prof:
    train()
    kept = torch.ones(1 << 18)
prof.export_memory_timeline("a.html")
with profiler.profile(activities=CPU, profile_memory=True) as nothing:
    pass
nothing.export_memory_timeline("nothing.html")
nothing.export_memory_timeline("nothing.json")
assert json.load(open("nothing.json")) == [[], []] == [raw(nothing, "nothing.raw.json.gz"), []]
print(1)
""",
        tmp_path,
    )
    text = (tmp_path / "a.html").read_text()
    shown = Shown(text)
    assert {"html", "svg", "path", "title"} <= set(shown.tags)
    assert not {"img", "script", "link", "iframe", "object"} & set(shown.tags)
    assert "http" not in text
    assert "url(" not in text
    assert "@import" not in text
    assert {"OPTIMIZER_STATE", "ACTIVATION", "GRADIENT", "AUTOGRAD_DETAIL", "TEMPORARY", "UNKNOWN"} <= set(shown.texts)
    assert "prefers-color-scheme: dark" in text
    [title] = {said for said in shown.texts if said.startswith("Memory of")}
    assert re.fullmatch(r"Memory of cpu: max allocated 1\.\d\d MiB", title)


def used(times_us: list[int], **bytes_of: list[int]) -> pl.DataFrame:
    columns = {"time_us": times_us, **{name: bytes_of.get(name, [0] * len(times_us)) for name in CATEGORIES}}
    return pl.DataFrame(columns, schema=dict.fromkeys(columns, pl.Int64))


def test_areas_lie_on_top_of_each_other_to_scale_and_texts_are_escaped() -> None:
    text = page(used([5, 105, 205], gradient=[100, 100, 0], unknown=[0, 300, 0]), CATEGORIES, "<i>&")
    assert "<i>" not in text
    assert "Memory of &lt;i&gt;&amp;: max allocated 400 B" in text
    gradient, unknown = (ys(part) for part in re.findall(r' d="(.*?)"', text))
    bottom, top = 440, 20  # pixels, in the picture
    quarter = bottom - (bottom - top) / 4
    assert (min(gradient), max(gradient)) == (quarter, bottom)
    assert (min(unknown), max(unknown)) == (top, bottom)


def test_nothing_recorded_is_an_empty_picture() -> None:
    text = page(used([]), CATEGORIES, "cpu")
    assert "max allocated 0 B" in text
    assert "<path" not in text


def test_a_million_events_are_a_small_page_with_the_peak_in_it() -> None:
    count, peak = 1_000_000, 567_890
    sizes = pl.int_range(count, eager=True) % 1000
    frame = used(list(range(count))).with_columns(activation=sizes.scatter(peak, 1 << 20))
    text = page(frame, CATEGORIES, "cpu")
    assert len(text) < 200_000
    assert "max allocated 1.00 MiB" in text
    assert min(ys(text)) == 20


def test_sizes_are_in_the_unit_that_fits() -> None:
    sizes = [size(count) for count in (0, 1023, 1024, 1536 << 10, 1 << 30, 1 << 50)]
    assert sizes == ["0 B", "1023 B", "1.00 KiB", "1.50 MiB", "1.00 GiB", "1024.00 TiB"]


def ys(path: str) -> list[float]:
    return [float(y) for y in re.findall(r"\d,(\d+\.\d)", path)]


class Shown(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.texts.append(data.strip())
