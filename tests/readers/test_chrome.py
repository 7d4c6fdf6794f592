"""The native reading of Chrome traces, against Python's json: any document, in any pieces, damaged anywhere."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from opspan import native
from opspan.errors import OpspanError
from opspan.formats import chrome
from opspan.formats.chrome import INTEGER, JSON, LIST, ONE, REAL, TEXT, Arg, ChromeFile
from opspan.tables import Issues

ARGS = (
    Arg("number", INTEGER, ("number", "Number")),
    Arg("real", REAL, ("real",)),
    Arg("said", TEXT, ("name",)),
    Arg("sizes", LIST, ("sizes",)),
    Arg("more", JSON, ("more",)),
)

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=8,
)
events = st.fixed_dictionaries(
    {"ph": st.sampled_from("XsfiM")},
    optional={
        "cat": st.sampled_from(["cpu_op", "kernel", "é"]),
        "name": st.text(max_size=30),
        "pid": st.integers(0, 2**40) | st.text(max_size=3),
        "tid": st.integers(0, 2**40),
        "ts": st.decimals(-(10**15), 10**15, places=3, allow_nan=False).map(float),
        "id": st.integers(0, 2**60),
        "something": values,
        "args": st.fixed_dictionaries(
            {},
            optional={
                "Number": st.integers(-(2**63), 2**63 - 1),
                "real": st.floats(allow_nan=False, allow_infinity=False),
                "name": st.text(max_size=10),
                "sizes": st.lists(st.lists(st.integers(0, 99), max_size=3), max_size=3),
                "more": values.filter(lambda value: value is not None),
                "other": values,
                'odd "key"\n': values,
            },
        ),
    },
)
documents = st.tuples(st.lists(events, max_size=12), st.dictionaries(st.text(max_size=6), values, max_size=3))
slow = settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])


def read(path: Path) -> tuple[list[dict[str, Any]], dict[str, Any], Issues]:
    issues = Issues(str(path))
    file = ChromeFile(path, issues)
    rows = [row for piece in file.pieces(ARGS, lambda events: events) for row in piece.iter_rows(named=True)]
    return rows, file.members, issues


def expected(event: dict[str, Any]) -> dict[str, Any]:
    args = event.get("args", {})
    known = {key for arg in ARGS for key in arg.keys}
    rest = {key: value for key, value in args.items() if key not in known}
    time = event.get("ts")
    return {
        "ph": event["ph"],
        "cat": event.get("cat"),
        "name": event.get("name"),
        "tid": event.get("tid"),
        "id": event.get("id"),
        "ts_ns": None if time is None else int(Decimal(repr(time)) * 1000),
        "number": args.get("Number"),
        "real": args.get("real"),
        "said": args.get("name"),
        "sizes": json.dumps(args["sizes"]) if "sizes" in args else None,
        "more": args.get("more"),
        "rest": rest or None,
    }


def found(row: dict[str, Any]) -> dict[str, Any]:
    parsed = {name: None if row[name] is None else json.loads(row[name]) for name in ("more", "rest")}
    return {**{name: row[name] for name in expected({"ph": "X"})}, **parsed}


@pytest.mark.slow
@slow
@given(document=documents, indent=st.sampled_from([None, 1]), ascii_only=st.booleans(), piece=st.integers(1, 300))
def test_any_document_reads_as_json_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, document: Any, indent: Any, ascii_only: bool, piece: int
) -> None:
    listed, members = document
    members.pop("traceEvents", None)
    text = json.dumps({**members, "traceEvents": listed}, indent=indent, ensure_ascii=ascii_only)
    path = tmp_path / "file.json"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    monkeypatch.setattr(chrome, "_PIECE", piece)

    rows, others, issues = read(path)

    assert [found(row) for row in rows] == [expected(event) for event in listed]
    assert others == members
    assert not issues.found


@pytest.mark.slow
@slow
@given(document=documents, cut=st.floats(0, 1), piece=st.integers(1, 300))
def test_a_file_cut_anywhere_gives_the_events_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, document: Any, cut: float, piece: int
) -> None:
    listed, _ = document
    text = json.dumps({"traceEvents": listed}).encode()
    text = text[: max(len('{"traceEvents": ['), int(cut * len(text)))]
    path = tmp_path / "file.json"
    path.write_bytes(text)
    monkeypatch.setattr(chrome, "_PIECE", piece)
    issues = Issues()
    file = ChromeFile(path, issues)

    rows = [row for part in file.pieces(ARGS, lambda events: events) for row in part.iter_rows(named=True)]

    # One that is cut in its args may be there, without them.
    whole = [found(row) for row in rows[: len(rows) - len(issues.found)]]
    assert whole == [expected(event) for event in listed][: len(whole)]
    ends_whole = text.endswith(b"]}")
    assert file.is_open_ended or issues.found or ends_whole or text.endswith(b"]")


@pytest.mark.slow
@slow
@given(data=st.binary(max_size=400) | st.text(alphabet='{}[]",:\\ \n0e.-tx', max_size=400).map(str.encode))
def test_any_bytes_are_a_trace_or_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    path = tmp_path / "file.json"
    path.write_bytes(b'{"traceEvents": [{"ph": "X", "ts": 1}, ' + data)
    monkeypatch.setattr(chrome, "_PIECE", 64)
    rows, _, issues = read(path)
    assert rows[0]["ts_ns"] == 1000
    assert all(row["rest"] is None or isinstance(json.loads(row["rest"]), dict) for row in rows)
    del issues


def test_what_strict_json_refuses(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    path.write_bytes(
        b'\xef\xbb\xbf[ {"ph":"X","name":"C:\\new\\dir \\q \t \xff \\ud83d\\ude00 \\ud83d","ts":1.5,"dur":-0.0004,'
        b'"args":{"real":NaN,"more":[Infinity,-1,01,],"other":{"a":nan,}},},\n'
        b'{"ph":"X","name":"b","ts":"0x10","pid":"7","tid":"worker","id":"0xff","args":null},\n'
    )
    rows, _, issues = read(path)
    first, second = rows
    assert first["name"] == "C:\new\\dir \\q \t � \U0001f600 �"
    assert (first["ts_ns"], first["dur_ns"], first["real"]) == (1500, 0, None)
    assert json.loads(first["more"]) == ["Infinity", -1, "01"]
    assert json.loads(first["rest"]) == {"other": {"a": "nan"}}
    assert (second["pid"], second["tid"], second["tid_text"], second["id"]) == (7, None, "worker", 255)
    assert [issue.code for issue in issues] == ["odd_cells"]  # NaN, and a time in hexadecimal


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("1712195495519689.047", 1712195495519689047),
        ("1.712195495519689047e15", 1712195495519689047),
        ("0.0005", 1),
        ("0.00049999999999999999999999999999999999999999", 0),
        ("-0.0005", -1),
        ("1e-400", 0),
        ("4611686018427387.904", 4611686018427387904),
        ("4611686018427387.905", None),
        ("1e400", None),
        ("0e999999999", 0),
        ("1e99999999999999999999", None),
        ("1.5.5", None),
        ("-", None),
        ("1712195495519689.0470000000000000000000000000000000000000000000001", 1712195495519689047),
    ],
)
def test_times(tmp_path: Path, text: str, ns: int | None) -> None:
    path = tmp_path / "file.json"
    path.write_text(f'[{{"ph": "X", "ts": {text}}}]')
    assert read(path)[0][0]["ts_ns"] == ns


def test_an_event_larger_than_a_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file.json"
    path.write_text(json.dumps([{"ph": "X", "ts": 1, "args": {"other": "x" * 5_000_000}}, {"ph": "X", "ts": 2}]))
    monkeypatch.setattr(chrome, "_PIECE", 1000)
    rows, _, _ = read(path)
    assert [row["ts_ns"] for row in rows] == [1000, 2000]
    assert len(rows[0]["rest"]) > 5_000_000


@pytest.mark.parametrize("piece", [*range(20, 60, 7), 200, 1000])
@pytest.mark.parametrize("is_bare", [True, False])
def test_what_looks_like_an_event_within_one_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: int, is_bare: bool
) -> None:
    within = [{"ph": "X", "ts": 7}, {"name": "a", "more": [{"ph": "X"}]}, {"tid": 8}]
    listed = [{"ph": "X", "ts": number, "args": {"more": within, "other": within}} for number in range(30)]
    path = tmp_path / "file.json"
    document = listed if is_bare else {"traceEvents": listed, "others": within}
    path.write_text(json.dumps(document, indent=1))
    monkeypatch.setattr(chrome, "_PIECE", piece)
    rows, members, issues = read(path)
    assert [row["ts_ns"] for row in rows] == [number * 1000 for number in range(30)]
    assert all(json.loads(row["more"]) == within == json.loads(row["rest"])["other"] for row in rows)
    assert members == ({} if is_bare else {"others": within})
    assert not issues.found


def test_an_event_without_end_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file.json"
    path.write_text('[{"ph": "X", "ts": 1, "name": "' + "x" * 100_000 + ', {"ph": "X", "ts": 2}]')
    monkeypatch.setattr(chrome, "_PIECE", 1000)
    monkeypatch.setenv("OPSPAN_BUDGET", "0.0002")  # 54 KB
    rows, _, issues = read(path)
    assert len(rows) <= 1
    assert [issue.code for issue in issues]


@pytest.mark.parametrize("piece", [10_000, 24])
def test_a_second_document_after_the_first_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: int
) -> None:
    monkeypatch.setattr(chrome, "_PIECE", piece)
    path = tmp_path / "file.json"
    path.write_text('[{"ph": "X", "ts": 1}]   [{"ph": "X", "ts": 2}]')
    rows, _, issues = read(path)
    assert len(rows) == 1
    assert [issue.code for issue in issues] == ["damaged_file"]


def test_what_is_no_state_or_type_is_refused() -> None:
    with pytest.raises(OpspanError, match="no such state"):
        native.chrome_events(b"{}", chrome._NO_ARGS, 49, is_last=True)
    wrong = pl.DataFrame({"column": ["a"], "key": ["a"], "as": [9]}, schema=chrome._NO_ARGS.schema)
    with pytest.raises(OpspanError, match="no such type"):
        native.chrome_events(b"{}", wrong, 0, is_last=False)


def test_what_an_event_says_does_not_depend_on_those_before_it(tmp_path: Path) -> None:
    """Each says the same keys as one before it, and values of another kind."""
    values = [
        '{"number": 7, "sizes": [[1]], "other": 1}',
        "5",
        '"text"',
        '{"number": "8", "sizes": "[[1]]", "other": {}}',
    ]
    values += [
        "[1]",
        '{"number": [1], "sizes": [[1]  ], "other": [ 1]}',
        "null",
        '{"number":7, "sizes":[], "other":1.50}',
    ]
    events = [f'{{"ph": "X", "name": "a", "ts": 1, "args": {value}}}' for value in values]
    (tmp_path / "all.json").write_text("[" + ", ".join(events) + "]")
    alone = []
    for number, event in enumerate(events):
        (tmp_path / f"{number}.json").write_text(f"[{event}]")
        alone += read(tmp_path / f"{number}.json")[0]
    assert read(tmp_path / "all.json")[0] == alone
    assert [row["number"] for row in alone] == [7, None, None, 8, None, None, None, 7]


@pytest.mark.parametrize(
    ("value", "number", "rest"),
    [
        ("[3]", 3, None),
        ("3", 3, None),
        ("-3", -3, None),
        ("[ 3 ]", 3, None),
        ('"3"', 3, None),
        ("[[3]]", 3, None),
        ("null", None, None),
        ("[3.5]", None, '{"one": [3.5]}'),
        ("[3, 4]", None, '{"one": [3, 4]}'),
        ('"many"', None, '{"one": "many"}'),
        ("[]", None, '{"one": []}'),
    ],
)
def test_a_number_that_may_stand_alone_in_a_list(
    tmp_path: Path, value: str, number: int | None, rest: str | None
) -> None:
    path = tmp_path / "file.json"
    path.write_text(f'[{{"ph": "X", "ts": 1, "args": {{"one": {value}}}}}]')
    file = ChromeFile(path, Issues())
    (row,) = (piece.row(0, named=True) for piece in file.pieces([Arg("one", ONE, ("one",))], lambda events: events))
    assert (row["one"], row["rest"]) == (number, rest)


def test_categories_that_differ_in_numbers_are_one(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    names = ["Flow_12_0", "Flow_13_0", "Flow", "Flows_1", "other"]
    path.write_text(json.dumps([{"ph": "s", "cat": name, "ts": 1} for name in names]))
    (rows,) = ChromeFile(path, Issues()).pieces([], lambda events: events, ("Flow",))
    assert rows["cat"].to_list() == ["Flow", "Flow", "Flow", "Flows_1", "other"]
