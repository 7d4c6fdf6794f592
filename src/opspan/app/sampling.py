"""Samples another program and its children with Linux's `perf`, for `opspan run --perf`.

perf does not start the program: it would end it at Ctrl-C, and would report errors in its own words. Instead, the
program's process waits before exec until perf, which has a session of its own, watches it. If that fails, the program
runs without perf.

    Sampler.start() -> the process of perf waits for a pid    attach(), in the program's process    finish()
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from opspan.app import capturing
from opspan.capture_files import PERF_DATA, PERF_TEXT
from opspan.files import temporary_folder
from opspan.printable import path_text, printable, shell_path, shortened

# The hardware event comes first, because its samples are the most exact. perf itself takes cpu-clock in its place where
# a machine has no such event; old versions of perf do not.
EVENTS = ("cycles", "cpu-clock")
FREQUENCY_HZ = 999
FIELDS = "comm,pid,tid,cpu,time,period,event,ip,sym,dso"
# Without build ids, perf reads no libraries when it ends, and copies none to the user's home.
_RECORD = (
    *("record", "-q", "-k", "CLOCK_MONOTONIC", "--sample-cpu", "-g"),
    *("--no-buildid", "--no-buildid-cache"),
)
_SCRIPT = ("script", "--header", "--ns", "--no-inline", "-F", FIELDS)
# Saves two thirds of the time for torch's libraries. opspan demangles names when it reads them.
_QUICKLY = ("--no-demangle",)
_WAIT_S = 10.0  # for perf to begin, which takes some 50 ms
_END_S = 60.0  # for perf to write its last samples
_PARANOID = Path("/proc/sys/kernel/perf_event_paranoid")
_LONGEST = 200
INSTALL = "install it (the package linux-perf, linux-tools or perf)"


class NoSamples(Exception):
    """There are no samples. The message is a sentence that says why, and what to do."""


class NoPerf(NoSamples):
    """perf cannot sample here."""

    def __init__(self, why: str, advice: str) -> None:
        super().__init__(f"{why}: {advice}")
        self.why = why
        self.advice = advice


def run(command: Sequence[str], environment: Mapping[str, str], folder: Path, report: Callable[[str], None]) -> int:
    """Runs the program as `capturing.run` does, and takes samples of it. The samples are files in the folder. `report`
    is called with a line that says where they are, or why there are none."""
    try:
        perf = sampler(folder)
        perf.start()
    except NoPerf as error:
        report(f"note: {error.why}, so CMD runs without samples: {error.advice}")
        return capturing.run(command, environment)
    except OSError as error:
        report(f"note: {error}")
        return capturing.run(command, environment)
    try:
        code = capturing.run(command, environment, before_exec=perf.attach)
    except BaseException:  # the program was not run
        perf.discard()
        raise
    try:
        text = perf.finish()
        report(f"Wrote {path_text(text)} ({text.stat().st_size:,} bytes: samples of `perf`)")
        if perf.why_early:
            report(f"note: `perf record` ended before CMD did ({perf.why_early}), so later samples are missing")
    except (NoSamples, OSError) as error:
        report(f"note: {error}")
    return code


@dataclass
class Sampler:
    """perf, which takes samples of one program."""

    perf: str
    event: str
    folder: Path
    frequency_hz: int = FREQUENCY_HZ
    wait_s: float = _WAIT_S  # for perf to begin
    end_s: float = _END_S  # for perf to write its last samples
    why_early: str = ""  # why perf failed while the program ran
    _process: subprocess.Popen[bytes] | None = None
    _errors: IO[bytes] | None = None
    _ours: list[int] = field(default_factory=list)  # file descriptors
    _pid_to: int = -1
    _ready: int = -1

    @property
    def data(self) -> Path:
        return self.folder / PERF_DATA

    def start(self) -> None:
        """Starts a process that becomes perf as soon as it has read a pid."""
        pid_from, self._pid_to = os.pipe()
        # This process keeps the other ends open, so that no write to a pipe is an error where perf has ended.
        control_from, control_to = os.pipe()
        self._ready, ready_to = os.pipe()
        self._ours = [pid_from, self._pid_to, control_from, control_to, self._ready]
        os.write(control_to, b"enable\n")
        # perf answers once it has read that command, so that nothing of the program is missed.
        control = ("-D", "-1", "--control", f"fd:{control_from},{ready_to}")
        record = (self.perf, *_record(self.event, self.frequency_hz), "-o", str(self.data), *control)
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  # closed in finish()
        try:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", 'read -r pid && exec "$@" -p "$pid"', "sh", *record],
                stdin=pid_from,
                stdout=self._errors,
                stderr=self._errors,
                pass_fds=(control_from, ready_to),
                env=_environment(),
                start_new_session=True,  # Ctrl-C in the terminal ends the program alone
            )
        except OSError:
            self._close()
            raise
        finally:
            os.close(ready_to)  # so that reading `_ready` ends when perf does

    def attach(self) -> None:
        """Waits until perf watches this process. Is called in the program's process, before it runs the program."""
        with contextlib.suppress(OSError):
            os.write(self._pid_to, f"{os.getpid()}\n".encode())
            if select.select([self._ready], [], [], self.wait_s)[0]:
                os.read(self._ready, 64)

    def finish(self) -> Path:
        """Ends perf, and writes the text of its samples. Returns the path of the text."""
        try:
            self._end()
            return self._write_text()
        finally:
            self._close()

    def finish_quickly(self, text_s: float) -> Path:
        """Does the same as `finish`, but the text has mangled names. Gives up if it is not written within `text_s`."""
        try:
            self._end()
            return self._write_text(_QUICKLY, text_s)
        finally:
            self._close()

    def discard(self) -> None:
        """Ends perf, and removes its file."""
        with contextlib.suppress(NoSamples):
            self._end()
        self._close()
        with contextlib.suppress(OSError):
            self.data.unlink(missing_ok=True)

    def _close(self) -> None:
        for number in self._ours:
            os.close(number)
        self._ours = []
        if self._errors is not None:
            self._errors.close()

    def _end(self) -> None:
        process = self._process
        if process is None:
            return
        if process.poll():  # it has failed; it ends without an error when it has seen all processes end
            self.why_early = _first_line(self._errors)
        process.send_signal(signal.SIGINT)
        try:
            process.wait(self.end_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise NoSamples(
                f"`perf record` did not end within {self.end_s:.0f} s, so there are no samples: record a shorter time"
            ) from None
        if not self.data.is_file() or not self.data.stat().st_size:
            raise NoSamples(f"`perf record` wrote no samples ({_first_line(self._errors)}): try it by itself")

    def _write_text(self, options: Sequence[str] = (), text_s: float | None = None) -> Path:
        text = self.folder / PERF_TEXT
        part = text.with_name(f".{PERF_TEXT}.part")
        command = [self.perf, *_SCRIPT, *options, "-i", str(self.data)]
        try:
            with part.open("wb") as out, tempfile.TemporaryFile() as errors:
                done = subprocess.run(
                    command,
                    stdout=out,
                    stderr=errors,
                    stdin=subprocess.DEVNULL,
                    env=_environment(),
                    timeout=text_s,
                )
                if done.returncode != 0:
                    why = self.why_early or _first_line(errors)
                    raise NoSamples(f"`perf script` could not read {path_text(self.data)} ({why}): {_free_space(why)}")
            part.replace(text)
        except subprocess.TimeoutExpired:
            raise NoSamples(
                f"`perf script` took longer than {text_s:.0f} s, so the samples are in {path_text(self.data)} alone: "
                f"`{_shown(command)}` prints them"
            ) from None
        except OSError as error:
            raise NoSamples(
                f"the text of the samples cannot be written ({error.strerror}), so they are in {path_text(self.data)} "
                f"alone: try `{_shown(command)}`"
            ) from error
        except KeyboardInterrupt:
            raise NoSamples(
                f"the text of the samples was not written, so they are in {path_text(self.data)} alone: "
                f"`{_shown(command)}` prints it"
            ) from None
        finally:
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)
        return text


def _record(event: str, frequency_hz: int) -> tuple[str, ...]:
    return (*_RECORD, "-F", str(frequency_hz), "-e", event)


def sampler(
    folder: Path, frequency_hz: int = FREQUENCY_HZ, *, wait_s: float = _WAIT_S, end_s: float = _END_S
) -> Sampler:
    """Returns perf with an event that it can sample here, which a short trial shows."""
    perf = shutil.which("perf")
    if perf is None:
        raise NoPerf("`perf` is not on the PATH", INSTALL)
    why = ""
    with temporary_folder("opspan-perf-") as trial:
        for event in EVENTS:
            command = [perf, *_record(event, frequency_hz), "-o", str(trial / PERF_DATA), "--", "/bin/sh", "-c", ":"]
            with tempfile.TemporaryFile() as errors:
                try:
                    done = subprocess.run(
                        command,
                        stdin=subprocess.DEVNULL,
                        stdout=errors,
                        stderr=errors,
                        env=_environment(),
                        timeout=wait_s,
                    )
                except (OSError, subprocess.TimeoutExpired) as error:
                    why = type(error).__name__
                    continue
                if done.returncode == 0:
                    return Sampler(perf, event, folder, frequency_hz, wait_s, end_s)
                why = _first_line(errors)
    raise NoPerf(f"`perf record` does not work here ({why})", _advice())


def _advice() -> str:
    with contextlib.suppress(OSError, ValueError):
        if int(_PARANOID.read_text()) > 2:
            return "`sudo sysctl kernel.perf_event_paranoid=2` allows it"
    return "try it by itself; a container needs `--cap-add PERFMON` and perf_event_open in its seccomp profile"


def _free_space(why: str) -> str:
    is_full = any(os.strerror(number) in why for number in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT))
    return "free some disk space, and record again" if is_full else "record again, or try `perf record` by itself"


def _first_line(errors: IO[bytes] | None) -> str:
    """Returns the first line of perf's messages that says something."""
    if errors is None:
        return "no message"
    errors.seek(0)
    lines = (line.strip() for line in errors.read(1 << 16).decode("utf-8", "replace").splitlines())
    line = next((line for line in lines if line and line not in ("Error:", "Warning:")), "no message")
    return shortened(printable(line), _LONGEST)


def _shown(command: Sequence[str]) -> str:
    _, *rest, data = command
    return f"perf {' '.join(rest)} {shell_path(Path(data))} > {PERF_TEXT}"


def _environment() -> dict[str, str]:
    """Returns variables with which perf neither reads a user's settings nor fetches symbols from servers."""
    return {**os.environ, "LC_ALL": "C", "PERF_CONFIG": "/dev/null", "DEBUGINFOD_URLS": ""}
