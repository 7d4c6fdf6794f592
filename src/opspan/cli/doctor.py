"""Implements `opspan doctor`, which shows what works on this machine."""

from __future__ import annotations

import click

from opspan.cli.printing import show


@click.command("doctor")
@click.option(
    "--fix",
    is_flag=True,
    help="Build the observer, which listens to torch, for the installed torch; remove outdated ones. Build the page of "
    "`opspan report` if the installation has none.",
)
def command(fix: bool) -> int:
    """Say what works on this machine, and how to fix the rest.

    Prints a line for each check: ok, optional (missing, but not needed) or WRONG. Exits with 2 if anything is WRONG.

    \b
    Example:
      opspan doctor
      opspan doctor --fix
    """
    from opspan.app import doctor

    if fix:
        doctor.fix()
    wrong = 0
    for check in doctor.checks():
        show(f"{check.name:<19} {check.state:<8} {check.found}\n")
        if check.todo and check.state != "ok":
            show(f"{'':<28} {'fix' if check.state == 'WRONG' else 'to have it'}: {check.todo}\n")
        wrong += check.state == "WRONG"
    if wrong:
        show(f"\n{wrong} of these {'is' if wrong == 1 else 'are'} WRONG: opspan does not work until fixed.\n")
    else:
        show("\nNothing is wrong: what is optional may stay as it is.\n")
    return 2 if wrong else 0
