"""opspan doctor: what works on this machine."""

from __future__ import annotations

import click

from opspan.cli.printing import show


@click.command("doctor")
@click.option("--fix", is_flag=True, help="Build the observer for the installed torch, remove old ones.")
def command(fix: bool) -> int:
    """Say what works on this machine, and what mends the rest.

    Exits with 1 when something that opspan needs does not work; a missing profiler is no such thing.

    \b
    Example:
      opspan doctor
      opspan doctor --fix
    """
    from opspan.emit import doctor

    if fix:
        doctor.fix()
    failing = 0
    for check in doctor.checks():
        show(f"{check.name:<19} {check.state:<6} {check.found}\n")
        if check.mend and check.state != "ok":
            show(f"{'':<26} mend: {check.mend}\n")
        failing += check.state == "FAILS"
    if failing:
        show(f"\n{failing} of these must be mended for opspan to label torch's ops.\n")
    return 1 if failing else 0
