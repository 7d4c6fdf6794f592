"""Asks a program here, which has `figures`, for as long as there are questions; with an interpreter that has the tool.

python answering.py hta_figures

What it imports takes longer than most files. Each line of the input is a list of arguments, as JSON; the answer is a
line, what `figures` returns. What is printed meanwhile goes to the errors.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import sys
import warnings
from pathlib import Path


def main(program: str) -> None:
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    sys.path.insert(0, str(Path(__file__).parent))
    figures = importlib.import_module(program).figures
    for question in sys.stdin:
        print(json.dumps(figures(*json.loads(question))), file=answers, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
