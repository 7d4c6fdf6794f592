"""Makes the text of docs/costs.md from the formulas that count the operations of ops."""

from __future__ import annotations

from collections.abc import Iterable

from opspan.analysis.formulas import RULES
from opspan.analysis.op_cost import CostRule
from opspan.analysis.product_rules import NOT_TOLD

HEAD = """\
# What ops cost

`opspan flops` counts these ops; [analysis.md](analysis.md#costs) has what it makes of them. An op that is not here has
no formula: where it takes 1% or more of the device time (without a device, of the ops' time), the answer names it.
`opspan.register_flops` adds one.

- A multiplication and an addition are two operations. M, N and K are the rows and columns of a product of matrices, and
  what is summed over; B is how many there are. What adds a bias, scales or activates a result is not counted with it.
- Only the first table is the model's own work, and in the MFU. Numbers of the second are estimates.
- Where torch's `FlopCounterMode` has a formula, the number here is the same, but for three of its own. It counts the
  gradient of a weight of a convolution with groups as if it had none. It counts two values in a byte as one. And
  `_flash_attention_forward`, `_efficient_attention_forward` and their backward, called with sequences that are not
  packed, count heads for tokens.
- **Attention** counts all pairs of a query and a key, and beside it those that a causal mask or a window hides, which
  are about half: `flops` is whole, `masked_flops` the hidden part. Shares of peaks and the MFU are without it, as fast
  kernels skip it; `mfu_whole` is with it. A mask that is a tensor hides nothing, for its values are not known.
- **Packed sequences** are counted if there is one, or if all are as long as the longest, as their lengths are in
  tensors, whose values no trace has. Keys in pages, or with a tensor that says how many of them are used, have no cost
  that is known.
- **Packed types.** Two values of fp4 in a byte count as two, where the trace has the types. Weights of int4 are counted
  by the sizes of their scales, or by values. Where neither tells, nothing is known.
- **Names in place**: `abs(_)` stands for `abs` and `abs_`.
"""

TABLE = """
| ops | operations |
| --- | --- |
"""


def text() -> str:
    products = {name: rule for name, rule in RULES.items() if rule.is_product}
    others = {name: rule for name, rule in RULES.items() if not rule.is_product}
    parts = [HEAD, "\n## Products\n", TABLE, *_rows(products), "\n## Other ops\n", TABLE, *_rows(others)]
    parts += ["\n## Ops without a cost, and why\n", "\n| ops | why |\n| --- | --- |\n"]
    reasons: dict[str, list[str]] = {}
    for name, reason in NOT_TOLD.items():
        reasons.setdefault(reason, []).append(name)
    parts += [f"| {_names(names)} | {reason} |\n" for reason, names in reasons.items()]
    return "".join(parts)


def _rows(rules: dict[str, CostRule]) -> Iterable[str]:
    alike: dict[str, list[str]] = {}
    for name, rule in rules.items():
        alike.setdefault(rule.says, []).append(name)
    return [f"| {_names(names)} | {says} |\n" for says, names in alike.items()]


def _names(names: list[str]) -> str:
    """Returns the names of ops, grouped by library, such as "aten: `mm`, `bmm`"."""
    libraries: dict[str, list[str]] = {}
    for name in names:
        library, _, own = name.partition("::")
        libraries.setdefault(library, []).append(own)
    return "; ".join(f"{library}: {', '.join(_pair_in_place(own))}" for library, own in libraries.items())


def _pair_in_place(names: list[str]) -> list[str]:
    pairs = {name for name in names if f"{name}_" in names}
    return [
        f"`{name}(_)`" if name in pairs else f"`{name}`" for name in names if name[:-1] not in pairs or name[-1] != "_"
    ]
