"""annotate, mark, record_function and the two namespaces: what they promise, and that it arrives."""

from __future__ import annotations

from pathlib import Path

import pytest

import opspan
from emit.running import HEAD, program, python, under_collectors
from opspan.emit.annotate import color_of


def names(folder: Path, domain: str | None = None) -> list[str]:
    ranges = opspan.load(folder).ranges.sort("start_ns")
    return list(ranges["name"])


def test_a_range_arrives_without_torch_and_without_a_compiler(captured: Path) -> None:
    env = {**under_collectors(captured), "PATH": "/nonexistent", "CXX": None}
    body = """
with opspan.annotate("one", color="red", category="io", payload=7): opspan.mark("moment")
print("torch" in sys.modules)
"""
    assert python(HEAD + body, env=env) == "False\n"
    ranges = opspan.load(captured).ranges
    assert sorted(ranges["name"]) == ["moment", "one"]  # both protocols reach one collector: each range once
    nvtx = ranges.filter(source="nvtx", name="one").row(0, named=True)
    assert (nvtx["category"], nvtx["color"], nvtx["payload_int"]) == ("io", 0xFFD62728, 7)


@pytest.mark.parametrize(
    ("define", "call"),
    [
        ("def work(x): return x + 1", "work(1)"),
        ("async def work(x):\n    await asyncio.sleep(0)\n    return x + 1", "asyncio.run(work(1))"),
        ("def work(x):\n    yield x\n    return 5", "list(work(2))[0]"),
        ("async def work(x):\n    yield x", "asyncio.run(collect(work(2)))[0]"),
        ("class A:\n    @opspan.annotate\n    def work(self, x): return x + 1\nwork = A().work", "work(1)"),
    ],
)
def test_every_kind_of_function_can_be_decorated(define: str, call: str, captured: Path) -> None:
    decorated = define if "annotate" in define else "@opspan.annotate\n" + define
    body = f"""
async def collect(items): return [item async for item in items]
{decorated}
print({call}, work.__name__)
"""
    assert program(body, captured) == "2 work\n"
    assert set(names(captured)) == {"A.work" if "class" in define else "work"}


def test_a_decorated_generator_behaves_as_before(captured: Path) -> None:
    body = """
log = []
def plain():
    try:
        got = yield 1
        try: yield got
        except KeyError: yield "caught"
        yield "last"
    finally: log.append("closed")
async def plain_async():
    try:
        got = yield 1
        try: yield got
        except KeyError: yield "caught"
        yield "last"
    finally: log.append("closed")
def use(make):
    generator = make()
    result = [next(generator), generator.send("sent"), generator.throw(KeyError()), next(generator)]
    generator.close()
    return result
async def use_async(make):
    generator = make()
    result = [await anext(generator), await generator.asend("sent"), await generator.athrow(KeyError()),
              await anext(generator)]
    await generator.aclose()
    return result
print(use(plain) == use(opspan.annotate(plain)))
print(asyncio.run(use_async(plain_async)) == asyncio.run(use_async(opspan.annotate("g")(plain_async))))
print(log)
"""
    assert program(body, captured) == "True\nTrue\n['closed', 'closed', 'closed', 'closed']\n"
    assert opspan.load(captured).ranges["end_ns"].null_count() == 0


def test_interleaved_coroutines_each_have_their_own_duration(captured: Path) -> None:
    body = """
@opspan.annotate
async def first(end): await end.wait()
@opspan.annotate
async def second(end): await end.wait()
async def block(end):
    async with opspan.annotate("block"): await end.wait()
async def main():
    ends = [asyncio.Event() for _ in range(3)]
    tasks = [asyncio.create_task(work(end)) for work, end in zip((first, second, block), ends)]
    await asyncio.sleep(0)  # each has begun
    for number in (1, 2, 0):
        ends[number].set()
        await tasks[number]
asyncio.run(main())
"""
    program(body, captured)
    ranges = opspan.load(captured).ranges.filter(source="nvtx")
    assert ranges.sort("start_ns")["name"].to_list() == ["first", "second", "block"]
    assert ranges.sort("end_ns")["name"].to_list() == ["second", "block", "first"]
    assert (ranges["end_ns"] > ranges["start_ns"].max()).all()
    assert set(ranges["is_async"]) == {True}


def test_an_exception_pops_and_comes_out(captured: Path) -> None:
    body = """
try:
    with opspan.annotate("outer"), opspan.record_function("inner", "args"): raise KeyError("x")
except KeyError: pass
print(opspan.nvtx.range_push("next"), opspan.nvtx.range_pop(), opspan.nvtx.range_pop())
"""
    assert program(body, captured) == "0 0 -1\n"


def test_one_annotation_can_be_used_again_and_within_itself(captured: Path) -> None:
    body = """
again = opspan.annotate("again")
with again:
    with again: pass
with again: pass
"""
    program(body, captured)
    assert names(captured).count("again") == 3


@pytest.mark.slow
def test_a_push_that_reached_nobody_is_not_popped_from_another() -> None:
    pytest.importorskip("torch")
    body = """
early = opspan.annotate("early")
early.__enter__()
session = opspan.record()
with session:
    inside = opspan.annotate("inside")
    inside.__enter__()
    early.__exit__(None, None, None)
    with opspan.annotate("child"): pass
    inside.__exit__(None, None, None)
rows = {row["name"]: row for row in session.trace.ranges.iter_rows(named=True)}
print(sorted(rows), rows["child"]["end_ns"] < rows["inside"]["end_ns"])
"""
    assert python(HEAD + body) == "['child', 'inside'] True\n"


@pytest.mark.parametrize("name", ["", "käse 検索 🔥", 'quo"te\\n\nnewline', "x" * 100_000, "\ud800 lone"])
def test_any_name_arrives(name: str, captured: Path) -> None:
    program(f"with opspan.annotate({name!r}): pass", captured)

    expected = name.encode("utf-8", "backslashreplace").decode()
    assert names(captured) == [expected]


@pytest.mark.parametrize(
    ("payload", "column", "value"),
    [
        ("7", "payload_int", 7),
        ("-1", "payload_int", -1),
        ("2**64 - 1", "payload_uint", 2**64 - 1),
        ("1.5", "payload_float", 1.5),
        ("True", "payload_int", 1),
    ],
)
def test_payloads_keep_their_type(payload: str, column: str, value: float, captured: Path) -> None:
    program(f"with opspan.annotate('p', payload={payload}): pass", captured)

    assert opspan.load(captured).ranges.filter(source="nvtx")[column].to_list() == [value]


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(TypeError, match="needs a name"), opspan.annotate():
        pass
    with pytest.raises(TypeError, match="decorates functions"):
        opspan.annotate("x")(int)
    with pytest.raises(TypeError):
        opspan.annotate("x", payload="text")  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="unknown color"):
        opspan.annotate("x", color="no color")


@pytest.mark.parametrize(
    ("color", "argb"),
    [(None, 0), ("Red", 0xFFD62728), ("#102030", 0xFF102030), (0x80102030, 0x80102030), (1, 0xFF000001)],
)
def test_colors(color: int | str | None, argb: int) -> None:
    assert color_of(color) == argb


@pytest.mark.parametrize("tool", ["nvtx", "itt"])
@pytest.mark.parametrize("listening", [True, False])
def test_push_and_pop_return_the_depth_whether_or_not_somebody_listens(
    tool: str, listening: bool, captured: Path
) -> None:
    body = f"""
from opspan import {tool} as tool
push, pop = tool.range_push, tool.range_pop
print(tool.is_available(), push("a"), push("b"), pop(), pop(), pop())
with tool.range("n = {{}}", 3): print(push("c"), pop())
tool.mark("m")
"""
    printed = program(body, captured) if listening else python(HEAD + body)

    assert printed == "True 0 1 1 0 -1\n1 1\n"
    if listening:
        assert names(captured) == ["a", "b", "n = 3", "c", "m"]
        assert set(opspan.load(captured).ranges["source"]) == {tool}


def test_an_nvtx_range_can_end_on_another_thread(captured: Path) -> None:
    body = """
handle = opspan.nvtx.range_start("crossing")
thread = threading.Thread(target=opspan.nvtx.range_end, args=(handle,))
thread.start(); thread.join()
opspan.nvtx.range_end(handle)  # twice does nothing
print(handle > 0)
"""
    assert program(body, captured) == "True\n"
    row = opspan.load(captured).ranges.row(0, named=True)
    assert row["end_ns"] > row["start_ns"]
    assert row["end_tid"] not in (None, row["tid"])


def test_with_nobody_listening_a_range_costs_little_more_than_python_takes_for_a_block() -> None:
    # Beside each other and the quickest of many, in processor time, as a busy machine slows both.
    code = """
import opspan, time, timeit
class Plain:
    def __init__(self, name, color=None): self.name = name
    def __enter__(self): return self
    def __exit__(self, *_): pass
def plain():
    with Plain("made"): pass
@opspan.annotate
def decorated(): pass
ready = opspan.annotate("ready")
def block():
    with ready: pass
def made():
    with opspan.annotate("made"): pass
calls = (plain, decorated, block, made)
times = [[timeit.timeit(call, timer=time.process_time, number=2_000) for call in calls] for _ in range(70)]
print(*(min(column) for column in zip(*times)))
"""
    of_plain, *of_ours = map(float, python(code).split())
    assert max(of_ours) < 8 * of_plain, [ours / of_plain for ours in of_ours]


def test_without_the_native_library_the_packages_carry_a_users_ranges(captured: Path, tmp_path: Path) -> None:
    pytest.importorskip("nvtx")
    pytest.importorskip("ittapi")
    env = {**under_collectors(captured), "OPSPAN_LIB_DIR": str(tmp_path)}
    body = """
with opspan.annotate("outer"):
    print(opspan.nvtx.range_push("inner"), opspan.itt.range_push("task"), end=" ")
    print(opspan.nvtx.range_pop(), opspan.itt.range_pop())
    opspan.mark("moment")
handle = opspan.nvtx.range_start("crossing")
threading.Thread(target=opspan.nvtx.range_end, args=(handle,)).start()
"""
    assert python(HEAD + body, env=env) == "1 1 1 1\n"
    ranges = opspan.load(captured).ranges.sort("start_ns")
    of = {source: ranges.filter(source=source)["name"].to_list() for source in ("nvtx", "itt")}
    # "outer" went both ways, and is one row. ittapi has no marks: what it has instead is a range.
    assert of == {"nvtx": ["outer", "inner", "moment", "crossing"], "itt": ["task", "moment"]}
    assert ranges.filter(is_mark=False)["end_ns"].null_count() == 0
