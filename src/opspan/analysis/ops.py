"""Parses labels that readers left as text, and gives names to the markers of PyProf and DLProf.

ops(ranges) -> ranges. If a range has a text and no name, its name and other columns come from the parsed text. Ranges
    whose name is a marker get a new name:
    {'mod': 'torch', 'op': 'cat', 'args': [...]} is named torch.cat, with its args and the sizes of its tensors.
    {'traceMarker': ['train.py:14', ...], ...} is named train.py:14, with the list of lines in args.
    The marker itself is kept in text. Values that other columns already have are kept.
"""

from __future__ import annotations

import polars as pl

from opspan.labels import KIND_NAMES, Kind, parse_column
from opspan.tables.schema import KIND

_OWN_DOMAIN = "opspan"
_KINDS = pl.Series("kind", KIND_NAMES, dtype=KIND)
_FIELDS = ("name", "seq", "op_id", "forward_tid", "class_name", "args", "sizes", "input_op_ids", "kind")


def ops(ranges: pl.DataFrame) -> pl.DataFrame:
    unread = ranges["name"].is_null() & ranges["text"].is_not_null()
    if unread.any():
        ranges = _read(ranges, unread)
    return _pyprof(ranges)


def _read(ranges: pl.DataFrame, unread: pl.Series) -> pl.DataFrame:
    text = ranges["text"]
    parsed = parse_column(text if unread.all() else text.zip_with(unread, pl.Series([None], dtype=pl.String)))
    columns = {name: _first(ranges[name], parsed[name]) for name in _FIELDS if name != "kind"}
    guessed = _KINDS.gather(parsed["kind"])
    kind = ranges["kind"]
    # Readers that do not detect the kind of a range write the kind `unknown`.
    columns["kind"] = _first(kind.set(kind == "unknown", None) if kind.count() else kind, guessed)
    # In opspan's own labels, a missing forward thread means the main thread, and 0 means an unknown thread.
    forward = columns["forward_tid"]
    main = unread & (ranges["domain"] == _OWN_DOMAIN).fill_null(value=False)
    if main.any():
        main &= (columns["kind"] == Kind.BACKWARD.name.lower()).fill_null(value=False) & forward.is_null()
        forward = ranges["pid"].zip_with(main, forward)
    columns["forward_tid"] = forward.set(forward == 0, None) if forward.count() else forward
    return ranges.with_columns(**columns)


def _first(values: pl.Series, parsed: pl.Series) -> pl.Series:
    """Fills the nulls of `values` with values of `parsed`."""
    if not values.count():
        return parsed
    return values.zip_with(values.is_not_null(), parsed.cast(values.dtype)) if parsed.count() else values


# --- Markers of PyProf and DLProf are Python dicts or JSON. Patterns read them, because evaluating them would run code.

_QUOTE = "[\"']"
_TEXT = "[\"']([^\"']*)[\"']"
_MOD = rf"^\{{{_QUOTE}mod{_QUOTE}: {_TEXT}"
_OP = rf"^\{{{_QUOTE}mod{_QUOTE}: {_TEXT}, {_QUOTE}op{_QUOTE}: {_TEXT}"
_ARGS = rf"{_QUOTE}args{_QUOTE}: (\[.*\])\}}$"
_SOURCE_LINES = rf"^\{{{_QUOTE}traceMarker{_QUOTE}: (\[[^\]]*\])"
_SOURCE_LINE = rf"^\{{{_QUOTE}traceMarker{_QUOTE}: \[{_TEXT}"
_ARGUMENT = rf"{_QUOTE}type{_QUOTE}: {_TEXT}(?:, {_QUOTE}shape{_QUOTE}: [\[(][0-9, ]*[\])])?"


def _sizes(marker: pl.Expr) -> pl.Expr:
    """Returns texts such as [[35, 20], []]: the shape of each argument that is a tensor, [] for other arguments."""
    shape = pl.element().str.extract(r"[\[(]([0-9, ]*)[\])]$").str.strip_chars_end(", ").fill_null("")
    inputs = marker.str.extract_all(_ARGUMENT).list.eval(pl.concat_str(pl.lit("["), shape, pl.lit("]")))
    return pl.concat_str(pl.lit("["), inputs.list.join(", "), pl.lit("]"))


def _pyprof(ranges: pl.DataFrame) -> pl.DataFrame:
    name = ranges["name"]
    is_marker = name.cat.starts_with("{'") | name.cat.starts_with('{"')
    if not is_marker.any():
        return ranges
    marker = pl.col("marker")
    markers = pl.DataFrame({"marker": name.unique()}).with_columns(marker.cast(pl.String).alias("label"))
    label = pl.col("label")
    op = pl.concat_str(label.str.extract(_OP, 1), pl.lit("."), label.str.extract(_OP, 2))
    markers = markers.select(
        "marker",
        pl.coalesce(op, label.str.extract(_SOURCE_LINE)).alias("name"),
        pl.coalesce(label.str.extract(_ARGS), label.str.extract(_SOURCE_LINES)).alias("args"),
        pl.when(op.is_not_null()).then(_sizes(label)).alias("sizes"),
    ).filter(pl.col("name").is_not_null())
    read = name.to_frame("marker").join(markers, on="marker", how="left", nulls_equal=True, maintain_order="left")
    is_read = read["name"].is_not_null()
    text = name.cast(pl.String).zip_with(is_read, pl.Series([None], dtype=pl.String))
    return ranges.with_columns(
        read["name"].cast(pl.Categorical).zip_with(is_read, name).alias("name"),
        _first(ranges["text"], text).alias("text"),
        _first(ranges["args"], read["args"]).alias("args"),
        _first(ranges["sizes"], read["sizes"].cast(pl.Categorical)).alias("sizes"),
    )
