"""Colours that stand in one picture can be told apart, also by people who lack one of the three kinds of cones."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

COLORS = Path(__file__).parents[2] / "src" / "page" / "colors.ts"
# Eyes of colour-blind people, as matrices on linear red, green and blue (Machado, Oliveira and Fernandes 2009, full
# severity).
EYES = {
    "usual": np.eye(3),
    "no red": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "no green": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "no blue": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}
XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
WHITE = np.array([0.9505, 1.0, 1.089])
PICTURES = {
    "steps": ("computing", "copying", "filling", "communicating", "calling", "loading", "ops", "other"),
    "timeline": (
        "forward",
        "backward",
        "optimizer",
        "step",
        "data",
        "other",
        "calling",
        "waiting",
        "idle",
        "kernel",
        "copying",
        "filling",
        "communicating",
    ),
    "timeline of serving": (
        *("prefill", "decode", "mixed", "step", "other", "calling", "waiting", "idle", "kernel", "copying", "filling"),
        "communicating",
    ),
    "memory": ("allocated", "reserved"),
    "compare": ("slower", "faster"),
    "distributed": ("computing", "overlapping", "communicating", "other"),
    "waiting": ("transfer", "waiting"),
    "tensor cores": ("tensor cores", "other"),
}
LEAST = 9  # distance in CIE 1976; from 2.3 on, two large patches that touch can just be told apart


def _colors(scheme: int) -> dict[str, str]:
    found = re.findall(r'^  "?([\w ]+)"?: \["(#\w{6})", "(#\w{6})"\],$', COLORS.read_text(encoding="utf-8"), re.M)
    assert len(found) > 20
    return {name: pair[scheme] for name, *pair in found}


def _lab(color: str, eyes: str) -> np.ndarray:
    parts = np.array([int(color[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    x, y, z = XYZ @ np.clip(EYES[eyes] @ linear, 0, 1) / WHITE
    fx, fy, fz = (np.cbrt(v) if v > 0.008856 else 7.787 * v + 16 / 116 for v in (x, y, z))
    return np.array([116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)])


def _apart(one: str, other: str, eyes: str) -> float:
    return float(np.linalg.norm(_lab(one, eyes) - _lab(other, eyes)))


def test_black_and_white_are_as_far_apart_as_that_measure_says() -> None:
    for eyes in EYES:
        assert _apart("#000000", "#ffffff", eyes) == pytest.approx(100, abs=0.1)
    assert _apart("#d00000", "#008000", "usual") > 4 * _apart("#d00000", "#7a6800", "no red")


@pytest.mark.parametrize("scheme", [0, 1], ids=("light", "dark"))
@pytest.mark.parametrize("eyes", EYES)
@pytest.mark.parametrize("picture", PICTURES)
def test_colors_of_one_picture_can_be_told_apart(picture: str, eyes: str, scheme: int) -> None:
    colors = _colors(scheme)
    pairs = [pair for pair in combinations(PICTURES[picture], 2) if colors[pair[0]] != colors[pair[1]]]
    close = {pair: round(apart, 1) for pair in pairs if (apart := _apart(*map(colors.__getitem__, pair), eyes)) < LEAST}
    assert not close
