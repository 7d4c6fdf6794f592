"""Computes the operations and bytes of the ops of a trace.

    costs(ranges) -> Costs. `rows` has a row for each range with a known cost, unless it is inside another such range:
        range (UInt32): row of the range.
        flops (Int64): operations; a multiplication and an addition are two.
        bytes (Int64): bytes that the op read and wrote; null if unknown.
        type (String): the type in which the op computed: fp64, fp32, bf16, fp16, fp8, int8; null for others.
        is_product (Boolean): whether the op is a product of matrices, a convolution or attention. These count as the
            model's own work.
        is_assumed (Boolean): whether a type was not in the trace and float32 was assumed.
        masked_flops (Int64): the part of `flops` that a causal mask or a window hides; null if the mask is unknown.
    `failed` has a sentence for each of the user's formulas that failed.

    register_flops(name, formula) sets a user's formula for an op.

docs/analysis.md, "costs", has the rules. Ranges must be nested.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import polars as pl

from opspan import forked
from opspan.analysis.each_op import is_inside, of_each
from opspan.analysis.formulas import RULES
from opspan.analysis.op_cost import COLUMNS, MOST, Cost, CostRule, cost
from opspan.analysis.product_rules import NOT_TOLD
from opspan.analysis.served_attention import served_attention
from opspan.element_types import names_in
from opspan.inputs import values_of
from opspan.labels import parse_sizes
from opspan.printable import printable

UserFormula = Callable[[Sequence[Any], Sequence[Any]], "int | tuple[int | None, int | None] | None"]


@dataclass(frozen=True)
class Costs:
    rows: pl.DataFrame
    failed: tuple[str, ...] = ()


class _UserRule(NamedTuple):
    formula: UserFormula
    is_product: bool


_registered: dict[str, _UserRule] = {}


def register_flops(name: str, formula: UserFormula | None, *, is_product: bool = True) -> None:
    """Sets a formula for the op of this name. It replaces opspan's own formula.

    The formula is called as formula(sizes, inputs). `sizes` has an entry for each argument: a list of integers for a
    tensor, a list of such lists for a list of tensors, [] for any other argument. `inputs` has the value of each
    argument (None for tensors); it is [] if the trace has no values. The formula returns the operations, or a pair of
    the operations and the bytes that the op reads and writes, or None if it cannot tell. The cost of a registered op
    includes all that runs inside the op.

    Args:
        name: the op, such as "mine::attention".
        formula: the function; None removes the formula.
        is_product: whether its operations count as the model's own work, in the MFU.
    """
    if formula is None:
        _registered.pop(name, None)
        forked.carried.pop(name, None)
    else:
        _registered[name] = _UserRule(formula, is_product)
        forked.carried[name] = (_register, (name, _registered[name]))


def _register(name: str, one: _UserRule) -> None:
    _registered[name] = one


def registered_ops() -> list[str]:
    return list(_registered)


def why_unknown(name: str) -> str:
    """Returns in words why the cost of an op of this name is unknown."""
    if name in NOT_TOLD:
        return NOT_TOLD[name]
    return "its inputs do not tell" if name in RULES or name in _registered else "no formula"


def costs(ranges: pl.DataFrame) -> Costs:
    failed: dict[str, str] = {}

    def cost_of(name: str, sizes: str, inputs: str | None, types: str | None) -> tuple[Any, ...]:
        own = _registered.get(name)
        if own is not None:
            return (*_of_user(name, own.formula, sizes, inputs, types, failed), own.is_product)
        rule = RULES[name]
        return (*_of_rule(rule, sizes, inputs, types), rule.is_product)

    rows = of_each(ranges, {**RULES, **_registered}, cost_of, COLUMNS)
    rows = pl.concat([rows, served_attention(ranges, _registered).select(rows.columns)]).sort("row")
    # A range with 0 operations counts only if its bytes are known.
    rows = rows.filter(pl.col("flops").is_not_null() & ((pl.col("flops") > 0) | pl.col("bytes").is_not_null()))
    marked = pl.Series([False]).new_from_index(0, ranges.height)
    marked = marked.scatter(rows["row"], values=True) if rows.height else marked
    rows = rows.filter(~is_inside(ranges, marked).gather(rows["row"]))
    columns = ("range", "flops", "bytes", "type", "is_product", "is_assumed", "masked_flops")
    return Costs(rows.rename({"row": "range"}).select(columns), tuple(failed.values()))


def _of_rule(rule: CostRule, sizes: str, inputs: str | None, types: str | None) -> Cost:
    if types is not None and types.startswith('[""'):
        # An empty type means that sizes are not recorded either, for example for a nested tensor.
        return Cost(None, None, None, is_assumed=False)
    try:
        return cost(rule, parse_sizes(sizes), values_of(inputs), _types(types))
    except ValueError:
        return Cost(None, None, None, is_assumed=False)


def _of_user(
    name: str, formula: UserFormula, sizes: str, inputs: str | None, types: str | None, failed: dict[str, str]
) -> Cost:
    try:
        parsed = parse_sizes(sizes)
        answer = formula(parsed, values_of(inputs))
        flops, moved = answer if isinstance(answer, tuple) else (answer, None)
        for number in (flops, moved):
            if number is None:
                continue
            if isinstance(number, bool) or not 0 <= int(number) < MOST or int(number) != number:
                raise ValueError(f"{number!r} is no count")
    except Exception as error:  # noqa: BLE001  whatever a user's function may raise
        sentence = f"The formula of {name} failed for {sizes}: {type(error).__name__}: {error}"
        failed.setdefault(name, printable(sentence[:300]))
        return Cost(None, None, None, is_assumed=False)
    every = CostRule(lambda *_: 0, range(len(parsed)), lambda *_: [])
    try:
        known = cost(every, parsed, [], _types(types))
    except ValueError:  # the types cannot be read
        return Cost(_whole(flops), _whole(moved), None, is_assumed=False)
    return Cost(_whole(flops), _whole(moved), known.type, known.is_assumed)


def _whole(number: Any) -> int | None:
    return None if number is None else int(number)


def _types(text: str | None) -> list[str] | None:
    return None if text is None else names_in(text)
