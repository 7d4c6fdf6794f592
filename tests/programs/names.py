"""Names a person may well write: not ASCII, very long, with quotes, newlines, and the grammar's own separators."""

import torch
from session import run

import opspan

NAMES = [
    "größe 漢字 🚀",
    "x" * 5000,
    "with \"quotes\" and 'more'",
    "two\nlines",
    "looks, like = a label, seq = 7",
    "",
]


def main() -> None:
    for name in NAMES:
        with opspan.annotate(name), torch.profiler.record_function(name):
            torch.ones(2).sum()


if __name__ == "__main__":
    run(main)
