"""A rule about casts, which are copies that only convert numbers to another type.

The input types of aten::copy_ show casts. If the file has no types, the names of torch's kernels show casts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import polars as pl

from opspan.findings.copy_causes import COPY, copy_causes, outermost_copies
from opspan.findings.odd_steps import rows_in_steps
from opspan.findings.rule import Evidence, Rule, place_of
from opspan.findings.run import Run, top
from opspan.findings.saved import leave_out, saved_ns, spans_around

_col = pl.col
# These are names of kernels that cast:
# void at::native::vectorized_elementwise_kernel<4, at::native::bfloat16tofloat32_copy_kernel_cuda(...)...
# void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(...), ... LoadWithCast<1>, ...
# float8_copy_kernel_cuda is left out, because it also copies float8 to float8, which is not a cast.
_KERNELS = r"\bb?float16(tofloat32)?_copy_kernel|bfloat16(tofloat32)?_copy_kernel|direct_copy_kernel.*LoadWithCast"


def _look(run: Run, threshold: float) -> Iterator[Evidence]:
    rows = _device_casts(run) if run.has_devices else _host_casts(run)
    ns = run.per_process(rows, "ns") if run.has_devices else run.longest(rows, "ns")
    outermost = outermost_copies(run, rows["range"])
    stretches = spans_around(run, pl.DataFrame({"range": outermost, "of": outermost}))
    work = rows["work"] if run.has_devices else None
    at_stake = saved_ns(run, leave_out(run, stretches=stretches, work=work), threshold)
    if not run.matters(at_stake, threshold):
        return
    places = place_of(rows.with_columns(op=copy_causes(run, rows["range"]).fill_null("aten::to")), "ns")
    types = next(iter(top(rows, "ns", "cast")), "types that the file does not name")
    yield Evidence(
        at_stake,
        {"ns": ns, "ns_share": run.share(ns), "casts": rows.height},
        {"types": types, "causes": ", ".join(places["ops"])},
        **places,
    )


def _device_casts(run: Run) -> pl.DataFrame:
    rows = run.computing
    names = rows.select(pl.coalesce("full_name", "name").alias("full")).to_series()
    casting = names.unique().cast(pl.String)
    casting = casting.filter(casting.str.contains(_KERNELS).fill_null(value=False)).cast(pl.Categorical)
    may_be = (_col("op") == COPY) | names.is_in(casting.implode())
    rows = rows.with_columns(is_named_so=names.is_in(casting.implode())).filter(may_be.fill_null(value=False))
    rows = _add_types(run, rows)
    return rows.filter(pl.when(_col("is_known")).then(_col("cast").is_not_null()).otherwise("is_named_so"))


def _host_casts(run: Run) -> pl.DataFrame:
    rows = rows_in_steps(run, run.ranges.filter(_col("name") == COPY))
    rows = _add_types(run, rows.with_columns(range="row", ns="self_ns"))
    return rows.filter(_col("cast").is_not_null(), _col("ns") > 0)


def _add_types(run: Run, rows: pl.DataFrame) -> pl.DataFrame:
    """Adds `is_known` (whether the file has the element types of both tensors of a copy) and `cast` (the two types if
    they differ)."""
    types = run.trace.ranges["input_types"].gather(rows["range"]).cast(pl.String).alias("types")
    rows = rows.with_columns(types)
    casts = [(text, *_cast(text)) for text in types.unique().drop_nulls()]
    schema = {"types": pl.String, "is_known": pl.Boolean, "cast": pl.String}
    rows = rows.join(pl.DataFrame(casts, schema, orient="row"), on="types", how="left", maintain_order="left")
    is_copy = (_col("op") == COPY).fill_null(value=False) if "op" in rows.columns else pl.lit(value=True)
    return rows.with_columns(
        is_known=_col("is_known").fill_null(value=False) & is_copy, cast=pl.when(is_copy).then("cast")
    )


def _cast(types: str) -> tuple[bool, str | None]:
    """Takes the input types of a copy, such as '["float", "c10::BFloat16", "Scalar"]'. Returns whether they name the
    types of target and source. Also returns the cast as text if these two types differ."""
    try:
        names = json.loads(types)
    except ValueError:
        return False, None
    ends = [name.removeprefix("c10::") for name in names[:2] if isinstance(name, str) and name]
    if len(ends) < 2:
        return False, None
    to, from_ = ends
    return True, f"{from_} to {to}" if to != from_ else None


RULES = (
    Rule(
        id="casts",
        title="Casts between types",
        looks_at="kernels of aten::copy_ whose ends are of different types, and on a run without devices these ops; at "
        "stake is how much sooner the run would have ended without them and what the host does for them",
        threshold=0.05,
        because="a twentieth of the time: that autocast casts each weight once a step takes less in most programs",
        sentence="{casts} casts took {ns} ({ns_share}), most of {types}; the ops that ask for them: {causes}",
        remedy="Keep weights and activations in the type that they are used in (model.to(torch.bfloat16)), let a "
        "region of autocast hold more ops, or torch.compile, which casts within other kernels",
        command="opspan table FILE --by shape",
        read="https://docs.pytorch.org/docs/stable/amp.html",
        look=_look,
    ),
)
