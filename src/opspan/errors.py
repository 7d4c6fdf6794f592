"""Defines every exception that opspan raises on purpose.

    OpspanError
    |-- UsageError              the call or the command line makes no sense
    |   |-- NoSuchColumn        a table has no such column to sort by (an AttributeError, as in torch)
    |   |-- BadSchedule         numbers that make no schedule (a ValueError, and an AssertionError, as in torch)
    |   |-- NotStarted          a profiler was asked before it recorded (a RuntimeError and an AssertionError)
    |   |-- NothingToProfile    no activity is left to record (an AssertionError, as in torch)
    |   `-- NoSuchStep          steps were asked for that are not in the trace
    |       `-- NoNumberedSteps by number, and the trace has no ranges ProfilerStep#N
    |-- ReadError               a file could not be read
    |   |-- NotReadable         missing, no permission, not the kind of path expected
    |   |-- NotATrace           readable, but nothing that opspan reads
    |   |-- Truncated           a trace, cut off before anything useful
    |   |-- TooNew              a trace, of a version that this opspan does not know
    |   |-- TooLarge            a trace that needs more memory than there is, or costs more than is allowed
    |   `-- StrictError         strict=True, and the trace has issues
    |-- WriteError              a result could not be written
    |-- PushError               a server did not take a profile
    |-- ClusterError            the cluster that was named cannot read files
    |-- EmitError               the live side: labelling or capturing could not start
    |   |-- AlreadyActive       emit_nvtx and its kin allow one session at a time (a RuntimeError, as in torch)
    |   |-- CaptureError        the capture file could not be made
    |   `-- ObserverError       torch's observer could not be had
    |       |-- NoCompiler      none found
    |       |-- BuildFailed     the compiler ran and failed
    |       `-- TorchUnsupported  no torch, or one that is too old or too new
    `-- MissingPackage          an optional part is not installed

A message is one line: what was found, what was expected, what to do. The command line prints it after `error: `
and exits with 2.
"""

from __future__ import annotations

from opspan.printable import LONGEST_LINE, printable, shortened


class OpspanError(Exception):
    """The base class. Its message is one printable line, whatever file names and foreign texts were put into it."""

    def __init__(self, message: str) -> None:
        super().__init__(shortened(printable(" ".join(message.split())), LONGEST_LINE))


class UsageError(OpspanError):
    """The call or the command line makes no sense."""


class NoSuchColumn(UsageError, AttributeError):
    """A table has no such column to sort by. torch raises AttributeError here, so this is an AttributeError too."""


class BadSchedule(UsageError, ValueError, AssertionError):
    """The numbers make no schedule; torch asserts here, so this is an AssertionError too."""


class NotStarted(UsageError, RuntimeError, AssertionError):
    """A profiler was asked for what it recorded before it recorded; torch asserts here, so this is an AssertionError
    too."""


class NothingToProfile(UsageError, AssertionError):
    """No activity is left to record; torch asserts here, so this is an AssertionError too."""


class NoSuchStep(UsageError):
    """The requested steps are not in the trace. If the trace is a cycle of a process, another cycle may have them."""


class NoNumberedSteps(NoSuchStep):
    """Steps were requested by number, but the trace has no ranges ProfilerStep#N. An analysis may find other steps."""


class ReadError(OpspanError):
    """A file could not be read."""


class NotReadable(ReadError):
    """The path is missing, forbidden, or not the kind of path that was expected."""


class NotATrace(ReadError):
    """The file is readable, but it is nothing that opspan reads."""


class Truncated(ReadError):
    """The file is a trace that was cut off before anything useful."""


class TooNew(ReadError):
    """The file is a trace of a version that this opspan does not know."""


class TooLarge(ReadError):
    """The trace needs more memory than there is, or would cost more than is allowed."""


class StrictError(ReadError):
    """Reading was strict, and the trace has issues."""


class WriteError(OpspanError):
    """A result could not be written."""


class PushError(OpspanError):
    """A server did not take a profile."""


class ClusterError(OpspanError):
    """The cluster that was named cannot read files."""


class EmitError(OpspanError):
    """Labelling or capturing could not start."""


class AlreadyActive(EmitError, RuntimeError):
    """A session is on already. torch raises RuntimeError here, so this is a RuntimeError too."""


class CaptureError(EmitError):
    """The capture file could not be made."""


class ObserverError(EmitError):
    """The observer of torch's ops could not be found, built or loaded."""


class NoCompiler(ObserverError):
    """The observer needs a C++ compiler once, and none was found."""


class BuildFailed(ObserverError):
    """The C++ compiler ran and did not produce the observer."""


class TorchUnsupported(ObserverError):
    """There is no torch, or one that the observer cannot be built for."""


class MissingPackage(OpspanError):
    """An optional part is not installed."""
