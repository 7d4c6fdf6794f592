"""Computes the usual time of a step, its error, and whether two runs differ by more than the noise of their steps.

    usual(times) -> Usual, with a value for each row of `times` (ns; a column for each step, in order of time):
        .usual: the mean of the steps, without the shortest fifth and the longest fifth of them.
        .error: the standard error of `usual`.
        .freedom: the degrees of freedom of `error`: the number of steps in `usual`, minus 1; fewer if steps are alike.
    is_real(count) -> an expression: whether usual_before and usual_after differ by more than noise, and by more than
        1 % of the larger of them. It also uses the columns error_before, error_after, freedom_before and freedom_after.
        `count` is the number of compared rows.

This is Yuen's version of Welch's test. The error shrinks as the number of steps grows. Two things are changed.

First, steps that follow each other are alike, for example because a clock slows down. They tell less than the same
number of independent steps. So the error is enlarged by the correlation of each step with the next. This correlation is
corrected for its bias, and enlarged by half of its own standard error. A run of four steps or more counts as at least
four independent steps, and in a shorter run all steps count as independent, because few steps say little about their
correlation.

Second, if many equal rows are compared, some differ by chance. So the limit is stricter for more rows: a false alarm in
any of the rows is at most as likely as if only one row were compared.

Yuen: The two-sample trimmed t for unequal population variances, Biometrika 61 (1974). Wallace: Bounds on normal
approximations to Student's distribution, Annals of Mathematical Statistics 30 (1959).
"""

from __future__ import annotations

from statistics import NormalDist
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

Values = npt.NDArray[np.float64]

LEVEL = 0.01  # how often two equal runs may be called different, as a share of all comparisons
_SMALL = 0.01  # changes smaller than this share of the larger time never count
_TRIMMED = 0.2
_INDEPENDENT = 4
_col = pl.col


class Usual(NamedTuple):
    usual: Values
    error: Values
    freedom: Values


def usual(times: npt.NDArray[np.int64]) -> Usual:
    rows, steps = times.shape
    cut = int(_TRIMMED * steps)
    remaining = steps - 2 * cut
    values = times.astype(np.float64)
    order = np.sort(values, axis=1)
    middle = order[:, cut : steps - cut].mean(axis=1)
    if steps < 2:
        return Usual(middle, np.zeros(rows), np.zeros(rows))
    # Yuen's test replaces each trimmed value by the nearest value that remains.
    values = np.clip(values, order[:, [cut]], order[:, [steps - cut - 1]])
    values -= values.mean(axis=1, keepdims=True)
    squares = (values**2).sum(axis=1)
    alike = (values[:, 1:] * values[:, :-1]).sum(axis=1) / np.where(squares > 0, squares, 1)
    alike += (1 + 3 * alike) / steps + 0.5 / steps**0.5
    most = max(steps / _INDEPENDENT, 1)
    largest = (most - 1) / (most + 1)
    alike = np.clip(alike, 0, largest)
    fewer = (1 + alike) / (1 - alike)  # this many steps tell as much as one independent step
    error = np.sqrt(squares / (remaining * (remaining - 1)) * fewer)
    return Usual(middle, error, np.maximum((remaining - 1) / fewer, 1))


def is_real(count: int = 1) -> pl.Expr:
    change = (_col("usual_after") - _col("usual_before")).abs()
    squares = [_col(f"error_{when}") ** 2 for when in ("before", "after")]
    square = squares[0] + squares[1]
    shares = [one**2 / _col(f"freedom_{when}").clip(1) for one, when in zip(squares, ("before", "after"), strict=True)]
    freedom = square**2 / (shares[0] + shares[1])
    # Wallace's formula turns Student's t into a deviation of the normal distribution; with few steps it is slightly too
    # strict.
    deviations = (8 * freedom + 1) / (8 * freedom + 3) * (freedom * (change**2 / square / freedom).log1p()).sqrt()
    limit = -NormalDist().inv_cdf(LEVEL / 2 / max(count, 1))
    is_more = pl.when(square > 0).then(deviations > limit).otherwise(change > 0)
    return is_more & (change > _SMALL * pl.max_horizontal("usual_before", "usual_after"))
