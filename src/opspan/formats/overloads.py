"""Splits the names of ops that end with their overload, as in aten::add.Tensor."""

from __future__ import annotations

import polars as pl

_NAMED = r"^\w+::\w+\.\w+$"
_PARTS = r"^(?<name>.*)\.(?<overload>[^.]*)$"


def have_overload(names: pl.Series) -> pl.Series:
    """Returns, for each name, whether it ends with an overload."""
    distinct = names.unique().drop_nulls()
    named = distinct.filter(distinct.cast(pl.String).str.contains(_NAMED))
    if not len(named):  # the names of most files have no overloads
        return pl.repeat(value=False, n=len(names), eager=True)
    return names.is_in(named.implode()).fill_null(value=False)


def without_overload(names: pl.Series, has_overload: pl.Series) -> tuple[pl.Series, pl.Series]:
    """Returns the names without overloads, such as aten::add, and the overloads, such as Tensor."""
    none = pl.Series([None], dtype=pl.Categorical)
    if not has_overload.any():
        return names, none.new_from_index(0, len(names))
    full_names = names.zip_with(has_overload, none)
    distinct = full_names.unique().drop_nulls()
    parts = distinct.cast(pl.String).str.extract_groups(_PARTS).struct.unnest()
    name, overload = (
        full_names.replace_strict(distinct, parts[part], default=None, return_dtype=pl.Categorical)
        for part in ("name", "overload")
    )
    return name.zip_with(name.is_not_null(), names), overload
