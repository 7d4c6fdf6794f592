"""Reports in nsys' own format (*.nsys-rep, *.qdrep, *.qdstrm): exported to SQLite by the installed nsys, once.

    NVIDIA Tegra Profiler Report 2026@1@2@63-261237296639v0\\n ...        an old one: NVIDIA Tegra Profiler Report 1.\\n

The export lies in opspan's cache, named after what identifies the report, never beside the report.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from opspan.errors import NotReadable, ReadError, TooNew

MAGIC = b"NVIDIA Tegra Profiler Report"
# Streams that no importer has made a report of yet begin in no way that says so.
STREAM = ".qdstrm"
HEAD_BYTES = 256

_WRITTEN_BY = re.compile(rb"NVIDIA Tegra Profiler Report ([0-9]{4}(?:@[0-9]+)+)")
_VERSION = re.compile(r"[0-9]{4}(?:\.[0-9]+)+")


def is_report(path: Path, head: bytes | None = None) -> bool:
    first = _head(path) if head is None else head
    return first.startswith(MAGIC) or (path.suffix == STREAM and bool(first) and not first.startswith(b"SQLite"))


def exported(report: Path) -> Path:
    """The SQLite export of a report, made now unless it was made before."""
    nsys = shutil.which("nsys")
    if nsys is None:
        raise NotReadable(
            f"{report} is a report that only nsys can read, and nsys is not on PATH; expected nsys, or its SQLite "
            f"export: install Nsight Systems, or run `{_command('nsys', report.with_suffix('.sqlite'), report)}` where "
            "it is installed and load that"
        )
    version = _nsys_version(nsys)
    target = cache_folder() / "exports" / f"{_identity(report, version)}.sqlite"
    if target.is_file():
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as folder:
            _export(nsys, version, report, Path(folder)).replace(target)
    except OSError as error:
        why = error.strerror or error
        raise NotReadable(
            f"cannot write the export of {report} to {target.parent}: {why}; expected room there"
        ) from error
    return target


def cache_folder() -> Path:
    own, common = os.environ.get("OPSPAN_CACHE_DIR"), os.environ.get("XDG_CACHE_HOME")
    return Path(own) if own else (Path(common) if common else Path.home() / ".cache") / "opspan"


def _head(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(HEAD_BYTES)
    except OSError as error:
        raise NotReadable(f"cannot read {path}: {error.strerror}; expected a file of nsys") from error


def _identity(report: Path, version: str) -> str:
    try:
        path, facts = report.resolve(), report.stat()
    except OSError as error:
        raise NotReadable(f"cannot read {report}: {error.strerror}; expected a report of nsys") from error
    what = f"{path}\0{facts.st_size}\0{facts.st_mtime_ns}\0{facts.st_ino}\0{version}"
    return hashlib.sha256(what.encode("utf-8", "surrogateescape")).hexdigest()[:32]


def _command(nsys: str, output: Path, report: Path) -> str:
    return f"{nsys} export --type sqlite --output {output} {report}"


def _export(nsys: str, version: str, report: Path, folder: Path) -> Path:
    # nsys is shown a link, so that whatever it may write beside its input is written here.
    link, output = folder / f"report{report.suffix or '.nsys-rep'}", folder / "export.sqlite"
    link.symlink_to(report.resolve())
    command = [nsys, "export", "--type", "sqlite", "--output", str(output), "--force-overwrite", "true", str(link)]
    done = subprocess.run(
        command, capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL, check=False
    )
    if done.returncode == 0 and output.is_file():
        return output
    written_by = _written_by(report)
    if written_by and _numbers(written_by) > _numbers(version):
        raise TooNew(
            f"{report} was written by nsys {written_by} and the installed nsys is {version}, which cannot read it; "
            f"update Nsight Systems, or run `{_command('nsys', report.with_suffix('.sqlite'), report)}` with nsys "
            f"{written_by} and load that"
        )
    said = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    why = said[-1][:300] if said else f"it ended with {done.returncode} and said nothing"
    raise ReadError(f"{report} could not be exported by nsys {version}: {why}; copy the report again or capture again")


def _written_by(report: Path) -> str | None:
    match = _WRITTEN_BY.match(_head(report))
    return match[1].decode().replace("@", ".") if match else None


def _nsys_version(nsys: str) -> str:
    try:
        done = subprocess.run([nsys, "--version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotReadable(f"{nsys} does not run ({error}); expected Nsight Systems: install it again") from error
    match = _VERSION.search(done.stdout)
    return match[0] if match else "unknown"


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in version.split(".") if number.isdigit())
