"""opspan doctor: what works on this machine."""

from __future__ import annotations

import click


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
        click.echo(f"{check.name:<19} {check.state:<6} {check.found}")
        if check.mend and check.state != "ok":
            click.echo(f"{'':<26} mend: {check.mend}")
        failing += check.state == "FAILS"
    if failing:
        click.echo(f"\n{failing} of these must be mended for opspan to label torch's ops.")
    return 1 if failing else 0
