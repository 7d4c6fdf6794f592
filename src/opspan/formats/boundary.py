"""Turns any error of a reader into a ReadError with a one-line message and the original error as its cause.

A file may have any content, and a reader cannot foresee every error. With OPSPAN_DEBUG=1 the command line prints the
traceback.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from polars.exceptions import PanicException

from opspan.errors import NotReadable, OpspanError, ReadError, TooLarge
from opspan.printable import path_text


@contextmanager
def boundary(path: Path) -> Iterator[None]:
    try:
        yield
    except OpspanError:
        raise
    except MemoryError as error:
        raise TooLarge(
            f"{path_text(path)} needs more memory than there is; read a part of it, or record a shorter time"
        ) from error
    except (Exception, PanicException) as error:  # PanicException is not a subclass of Exception
        if isinstance(error, OSError) and error.strerror:
            raise NotReadable(f"cannot read {path_text(error.filename or path)}: {error.strerror}") from error
        why = " ".join(str(error).split())[:200]
        raise ReadError(
            f"{path_text(path)} cannot be read ({type(error).__name__}{': ' if why else ''}{why}): it is damaged, "
            "or of a kind that opspan does not know; copy or export it again. If its own tool opens it, the fault is "
            "opspan's: please report what OPSPAN_DEBUG=1 shows"
        ) from error
