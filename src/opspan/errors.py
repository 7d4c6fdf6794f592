"""Defines every exception that opspan raises on purpose.

    OpspanError
    |-- UsageError              the call or the command line makes no sense
    |   |-- NoSuchColumn        a table has no such column to sort by (an AttributeError, as in torch)
    |   |-- BadSchedule         the numbers of a schedule are wrong (a ValueError, and an AssertionError, as in torch)
    |   |-- NotStarted          a profiler has not recorded yet (a RuntimeError and an AssertionError)
    |   |-- NothingToProfile    no activity is left to record (an AssertionError, as in torch)
    |   `-- NoSuchStep          the requested steps are not in the trace
    |       `-- NoNumberedSteps steps were requested by number, but the trace has no ranges ProfilerStep#N
    |-- ReadError               a file could not be read
    |   |-- NotReadable         the path is missing, forbidden, or not a file or folder as expected
    |   |-- NotATrace           the file can be read, but opspan does not know its format
    |   |-- Truncated           the file is a trace that was cut off before anything useful
    |   |-- TooNew              the file is a trace of a version that this opspan does not know
    |   |-- TooLarge            the trace needs more memory than there is, or exceeds a limit
    |   `-- StrictError         the trace has issues, and strict=True was given
    |-- WriteError              a result could not be written
    |-- PushError               a server did not take a profile
    |-- ClusterError            the requested cluster cannot read the files
    |-- EmitError               labelling or capturing a program could not start
    |   |-- AlreadyActive       emit_nvtx or a similar session is already active (a RuntimeError, as in torch)
    |   |-- CaptureError        the capture file could not be made
    |   `-- ObserverError       the observer of torch's ops could not be found, built or loaded
    |       |-- NoCompiler      no C++ compiler was found
    |       |-- BuildFailed     the C++ compiler ran and failed
    |       `-- TorchUnsupported  torch is missing, too old or too new
    `-- MissingPackage          an optional package is not installed

A message is one line, which says what was found, what was expected, and what to do. The command line prints it after
`error: ` and exits with 2.
"""

from __future__ import annotations

from opspan.printable import LONGEST_LINE, printable, shortened


class OpspanError(Exception):
    """The base class of opspan's errors. Its message is one printable line, even if line breaks are in a file name or
    in another program's text that the message contains."""

    def __init__(self, message: str) -> None:
        super().__init__(shortened(printable(" ".join(message.split())), LONGEST_LINE))


class UsageError(OpspanError):
    """The call or the command line makes no sense."""


class NoSuchColumn(UsageError, AttributeError):
    """A table has no such column to sort by. torch raises AttributeError here, so this is an AttributeError too."""


class BadSchedule(UsageError, ValueError, AssertionError):
    """The numbers of a schedule are wrong. torch raises AssertionError here, so this is an AssertionError too."""


class NotStarted(UsageError, RuntimeError, AssertionError):
    """A profiler was asked for results before it recorded anything. torch raises AssertionError here, so this is an
    AssertionError too."""


class NothingToProfile(UsageError, AssertionError):
    """No activity is left to record. torch raises AssertionError here, so this is an AssertionError too."""


class NoSuchStep(UsageError):
    """The requested steps are not in the trace. If the trace is one cycle of a process (one of its files), another
    cycle may have these steps."""


class NoNumberedSteps(NoSuchStep):
    """Steps were requested by number, but the trace has no ranges ProfilerStep#N. Without these ranges, an
    analysis may still find the steps."""


class ReadError(OpspanError):
    """A file could not be read."""


class NotReadable(ReadError):
    """The path is missing, forbidden, or not the kind of path that was expected."""


class NotATrace(ReadError):
    """The file can be read, but opspan does not know its format."""


class Truncated(ReadError):
    """The file is a trace that was cut off before anything useful."""


class TooNew(ReadError):
    """The file is a trace of a version that this opspan does not know."""


class TooLarge(ReadError):
    """The trace needs more memory than there is, or exceeds a limit."""


class StrictError(ReadError):
    """The trace has issues, and strict reading was requested."""


class WriteError(OpspanError):
    """A result could not be written."""


class PushError(OpspanError):
    """A server did not take a profile."""


class ClusterError(OpspanError):
    """The requested cluster cannot read the files."""


class EmitError(OpspanError):
    """Labelling or capturing could not start."""


class AlreadyActive(EmitError, RuntimeError):
    """A session is already active. torch raises RuntimeError here, so this is a RuntimeError too."""


class CaptureError(EmitError):
    """The capture file could not be made."""


class ObserverError(EmitError):
    """The observer of torch's ops could not be found, built or loaded."""


class NoCompiler(ObserverError):
    """The observer must be built once, and no C++ compiler was found."""


class BuildFailed(ObserverError):
    """The C++ compiler ran and did not produce the observer."""


class TorchUnsupported(ObserverError):
    """torch is missing, or the observer cannot be built for its version."""


class MissingPackage(OpspanError):
    """An optional package is not installed."""
