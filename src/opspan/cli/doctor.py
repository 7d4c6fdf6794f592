"""Implements `opspan doctor`, which shows what works on this machine."""

from __future__ import annotations

import json

import click

from opspan.cli.printing import show, show_data
from opspan.errors import UsageError


@click.command("doctor")
@click.option(
    "--fix",
    is_flag=True,
    help="Build the observer, which listens to torch, for the installed torch; remove outdated ones. Build the page of "
    "`opspan report` if the installation has none.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the checks as one JSON object.")
@click.option(
    "--report",
    "as_report",
    is_flag=True,
    help="Print the checks as a block of Markdown to copy into a bug report. Home folders and user names in paths are "
    "replaced.",
)
@click.option(
    "--measure-peaks",
    is_flag=True,
    help="Measure for some seconds how fast this machine's processor multiplies matrices and copies memory with torch. "
    "What opspan records afterwards carries the figures, and `opspan flops` divides by them.",
)
def command(fix: bool, as_json: bool, as_report: bool, measure_peaks: bool) -> int:
    """Say what works on this machine, and how to fix the rest.

    Prints a line for each check: ok, optional (missing, but not needed) or WRONG. Exits with 2 if anything is WRONG.

    \b
    Example:
      opspan doctor
      opspan doctor --fix
      opspan doctor --report
      opspan doctor --measure-peaks
    """
    from opspan.app import doctor, doctor_report

    if measure_peaks:
        if fix or as_json or as_report:
            raise UsageError("--measure-peaks prints figures and no checks: leave the other options out")
        _measure_peaks()
        return 0

    if as_json and as_report:
        raise UsageError("--json and --report each print the checks in their own way: leave one of them out")
    if fix:
        doctor.fix()
    if as_json or as_report:
        checks = list(doctor.checks())
        if as_json:
            show_data(f"{json.dumps(doctor_report.as_object(checks), indent=2)}\n")
        else:
            show(doctor_report.as_markdown(checks))
        return 2 if any(check.state == "WRONG" for check in checks) else 0
    wrong = 0
    for check in doctor.checks():
        show(doctor_report.as_text(check))
        wrong += check.state == "WRONG"
    if wrong:
        show(f"\n{wrong} of these {'is' if wrong == 1 else 'are'} WRONG: opspan does not work until fixed.\n")
    else:
        show("\nNothing is wrong: what is optional may stay as it is.\n")
    return 2 if wrong else 0


def _measure_peaks() -> None:
    from opspan.app import measure_peaks

    for line in measure_peaks.lines(lambda step: show(f"measuring {step} ...\n", err=True)):
        show(f"{line}\n")
