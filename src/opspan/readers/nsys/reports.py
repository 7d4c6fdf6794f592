"""Lets the installed nsys export its reports (*.nsys-rep, *.qdrep, *.qdstrm) to SQLite, once for each report.

    NVIDIA Tegra Profiler Report 2026@1@2@63-261237296639v0\\n        the beginning of a report
    NVIDIA Tegra Profiler Report 1.\\n                                the beginning of an old report

The export goes into opspan's cache (exports.py), never into the report's folder. The export's name is a hash of the
report's path, size, time and inode, and of the version of nsys.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from contextlib import ExitStack
from pathlib import Path

from opspan import private_files
from opspan.errors import NotReadable, ReadError, TooNew
from opspan.files import open_file
from opspan.formats import progress
from opspan.printable import shell_path
from opspan.readers.nsys import exports
from opspan.tables import Issues

MAGIC = b"NVIDIA Tegra Profiler Report"
# A stream (not yet imported into a report) has no recognisable first bytes, so its suffix decides.
STREAM = ".qdstrm"
_HEAD_BYTES = 256

_WRITTEN_BY = rb"NVIDIA Tegra Profiler Report ([0-9]{4}(?:@[0-9]+)+)"
_VERSION = r"[0-9]{4}(?:\.[0-9]+)+"
# Old reports have no version in their head. The version is later in the file, together with its build:
# 2022.4.2.1-df9881f or 2023.4.4.54-234433681190v0. Other versions in a report, such as a driver's, have no build of
# this form.
_BUILT = rb"(?<![0-9.])(20[0-9]{2}(?:\.[0-9]{1,4}){3})-(?:[0-9]{6,16}v[0-9]|[0-9a-f]{7}(?![0-9a-zA-Z]))"
_PIECE_BYTES = 16 << 20
_LONGEST_BUILT = 64


def is_report(path: Path, head: bytes) -> bool:
    """Returns whether a file (not an SQLite database) is a report. `head`: its first bytes."""
    return head.startswith(MAGIC) or (path.suffix == STREAM and bool(head))


def export_once(path: Path, stack: ExitStack, issues: Issues) -> Path:
    """Returns the SQLite export of a report. Makes the export if it does not exist yet. Locks the export until `stack`
    is closed."""
    nsys = shutil.which("nsys")
    if nsys is None:
        raise NotReadable(
            f"{path} is a report that only nsys can read, and nsys is not on PATH; expected nsys, or its SQLite "
            f"export: install Nsight Systems, or run `{_command('nsys', path.with_suffix('.sqlite'), path)}` where "
            "it is installed and load that"
        )
    version = _nsys_version(nsys)
    folder = exports.folder()
    name = f"{_identity(path, version)}.sqlite"
    try:
        try:
            # Mode 0700, because other users may not be allowed to read the report.
            target = private_files.kept_folder(folder, mode=0o700) / name
        except PermissionError as error:
            if error.strerror is not None:
                raise
            issues.add("not_kept", detail=str(error))
            return _export(nsys, version, path, stack.enter_context(private_files.claimed(None, "opspan-export-")))
        while not exports.hold(target, stack):
            with private_files.claimed(target.parent, "exporting-") as inner, ExitStack() as until_here:
                export = _export(nsys, version, path, inner)
                export.chmod(0o600)
                os.close(private_files.opened(export))  # raises an error if the disk does not keep the mode
                # If the export exists now, another process has made it and may be reading it. So this process does not
                # replace it.
                if not exports.hold(target, until_here):
                    export.replace(target)
    except OSError as error:
        why = error.strerror or error
        raise NotReadable(
            f"cannot write the export of {path} to {folder}: {why}; free some space there, or set OPSPAN_CACHE_DIR "
            "to another folder"
        ) from error
    exports.remove_old(folder)
    return target


def _identity(path: Path, version: str) -> str:
    try:
        real, facts = path.resolve(), path.stat()
    except OSError as error:
        raise NotReadable(f"cannot read {path}: {error.strerror}; expected a report of nsys") from error
    identity = f"{real}\0{facts.st_size}\0{facts.st_mtime_ns}\0{facts.st_ino}\0{version}"
    return hashlib.sha256(identity.encode("utf-8", "surrogateescape")).hexdigest()[:32]


def _command(nsys: str, output: Path, path: Path) -> str:
    return f"{nsys} export --type sqlite --output {shell_path(output)} {shell_path(path)}"


def _export(nsys: str, version: str, path: Path, folder: Path) -> Path:
    # nsys may write files into the folder of its input. So its input is a link to the report, and these files go into
    # `folder`.
    link, output = folder / f"report{path.suffix or '.nsys-rep'}", folder / "export.sqlite"
    link.symlink_to(path.resolve())
    command = [nsys, "export", "--type", "sqlite", "--output", str(output), "--force-overwrite", "true", str(link)]
    progress.wait_for(f"nsys exports {path.name!r}")
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL, check=False
        )
    finally:
        progress.wait_for("")
    if done.returncode == 0 and output.is_file():
        return output
    if path.suffix == STREAM:
        raise ReadError(
            f"{path} is a stream, of which nsys has not made a report yet; run "
            f"`QdstrmImporter -i {shell_path(path)}` (it is in the folder host-linux-x64 of Nsight Systems) and load "
            "the report that it writes"
        )
    # The versions are compared after any failure, because the message for a newer report differs between versions of
    # nsys.
    written_by = _written_by(path)
    if written_by and _release(written_by) > _release(version):
        raise TooNew(
            f"{path} was written by nsys {written_by} and the installed nsys is {version}, which cannot read it; "
            f"update Nsight Systems, or run `{_command('nsys', path.with_suffix('.sqlite'), path)}` with nsys "
            f"{written_by} and load that"
        )
    lines = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    why = lines[-1][:300] if lines else f"it ended with {done.returncode} and said nothing"
    newer = "" if written_by else "if a newer nsys wrote it, update Nsight Systems; else "
    raise ReadError(
        f"{path} could not be exported by nsys {version}: {why}; {newer}copy the report again or capture again"
    )


def _written_by(path: Path) -> str | None:
    """Returns the version of nsys that wrote the report, or None if the report does not state the version."""
    with open_file(path) as stream:
        match = re.match(_WRITTEN_BY, stream.read(_HEAD_BYTES))
    if match:
        return match[1].decode().replace("@", ".")
    versions: list[str] = []
    before = b""
    with open_file(path) as stream:
        while piece := stream.read(_PIECE_BYTES):
            versions += (match[1].decode() for match in re.finditer(_BUILT, before + piece))
            before = piece[-_LONGEST_BUILT:]
    return max(versions, key=_numbers, default=None)


def _nsys_version(nsys: str) -> str:
    try:
        done = subprocess.run([nsys, "--version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotReadable(f"{nsys} does not run ({error}); expected Nsight Systems: install it again") from error
    match = re.search(_VERSION, done.stdout)
    return match[0] if match else "unknown"


def _release(version: str) -> tuple[int, ...]:
    """Returns the version without its build number, because packages of one release have different builds."""
    return _numbers(version)[:3]


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in version.split(".") if number.isdigit())
