"""Makes the parts of one page in a separate process. So a large trace does not slow down TensorBoard or use its memory,
and a trace that crashes this process does not crash TensorBoard.

    python -m opspan.tensorboard.work FOLDER FILE... [--against FILE...]

The process writes FOLDER/head.json, and FOLDER/NAME.json.gz for each section. If it exits with 2, the last line of
stderr says why.
"""

from __future__ import annotations

import gzip
import sys
from collections.abc import Sequence
from pathlib import Path

from opspan.errors import OpspanError
from opspan.loading import load
from opspan.printable import printable
from opspan.tensorboard.pages import HEAD, part_file
from opspan.views.page.document import page_parts
from opspan.views.page.section import Subject, as_json


def main(arguments: Sequence[str]) -> int:
    folder, *names = arguments
    at = names.index("--against") if "--against" in names else len(names)
    files, others = ([Path(name) for name in part] for part in (names[:at], names[at + 1 :]))
    try:
        analysis = load(*files).analysed
        other = load(*others).analysed if others else None
        head, data = page_parts(Subject(analysis, tuple(files), other, tuple(others)))
    except OpspanError as error:
        print(printable(str(error)), file=sys.stderr)  # noqa: T201  # the answer of this program
        return 2
    for name, part in data.items():
        Path(folder, part_file(name)).write_bytes(gzip.compress(as_json(part).encode(), 6))
    Path(folder, HEAD).write_text(as_json(head), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
