"""What a Parquet file may say of itself: so many rows, so long a footer, and no more than it holds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from opspan.errors import ReadError, TooLarge
from opspan.readers._parquet import check
from readers.loading import OVER_BUDGET


def test_rows_of_a_parquet_file(tmp_path: Path, budget: Callable[[float], None]) -> None:
    path = tmp_path / "x.parquet"
    pl.DataFrame({"start": [1]}).select(pl.col("start").repeat_by(100_000).explode()).write_parquet(path)
    budget(100_000 / 10_000_000)
    check(path)
    budget(99_999 / 10_000_000)
    with pytest.raises(TooLarge, match="more rows are in a table " + OVER_BUDGET):
        check(path)


def test_footer_of_a_parquet_file(tmp_path: Path, budget: Callable[[float], None]) -> None:
    path = tmp_path / "x.parquet"
    pl.DataFrame({f"column {number}": [1] for number in range(100)}).write_parquet(path)
    length = int.from_bytes(path.read_bytes()[-8:-4], "little")
    budget((length + 1) / (64 << 20))
    check(path)
    budget((length - 1) / (64 << 20))
    with pytest.raises(TooLarge, match="more bytes are in the footer of a table " + OVER_BUDGET):
        check(path)


def test_a_footer_that_says_more_than_it_holds_is_not_believed(tmp_path: Path) -> None:
    """polars would make room for what it says, and abort the process where there is none."""
    path = tmp_path / "x.parquet"
    pl.DataFrame({"a": [1, 2], "b": ["x", None], "c": [[1.5], []]}).write_parquet(path)
    raw = path.read_bytes()
    start = len(raw) - 8 - int.from_bytes(raw[-8:-4], "little")
    check(path)
    at = raw.index(b"\x19", start)  # the schema: a list of so many
    for many in (b"\xfc\xff\xff\xff\xff\x07", b"\xfc\xff\xff\x7f"):
        hostile_footer = raw[start : at + 1] + many + raw[at + 2 : -8]
        path.write_bytes(raw[:start] + hostile_footer + len(hostile_footer).to_bytes(4, "little") + b"PAR1")
        with pytest.raises(ReadError, match="its footer says more than it holds"):
            check(path)
    path.write_bytes(raw[:-1])
    with pytest.raises(ReadError, match="its last bytes are not those of one"):
        check(path)
    path.write_bytes(b"PAR1")
    with pytest.raises(ReadError, match="no Parquet file"):
        check(path)
