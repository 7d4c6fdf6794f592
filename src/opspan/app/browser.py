"""Opens an address in the user's browser with the standard library's `webbrowser`, unless the user would not see that
browser.

`webbrowser` runs in a separate process, because a browser writes to the streams that it inherits. If it inherited
opspan's streams, a program that reads opspan's output would wait until the browser ends.
"""

from __future__ import annotations

import os
import subprocess
import sys

PATIENCE_S = 10.0  # if `webbrowser` takes longer to end, it has started a browser and waits for it
# The address is passed through standard input, because other users of the machine can see the arguments of a process.
_PROGRAM = "import sys, webbrowser; sys.exit(not webbrowser.open(sys.stdin.read()))"
_FAILED = "no browser was found"


def open_address(address: str) -> str | None:
    """Opens the address. Returns why no browser was opened, or None."""
    if reason := why_none(address):
        return reason
    try:
        # Without -I, a file webbrowser.py in the working directory would be run.
        process = subprocess.Popen(
            [sys.executable, "-I", "-c", _PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # so that Ctrl-C for opspan does not end the browser
        )
    except OSError:
        return _FAILED
    try:
        process.communicate(address.encode(), timeout=PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.returncode = 0  # avoids Python's warning that the process still runs
        return None
    return _FAILED if process.returncode else None


def why_none(address: str) -> str | None:
    """Returns why a browser that opens the address would not be seen by the user, or None."""
    is_chosen = bool(os.environ.get("BROWSER"))
    # An editor that works over ssh sets BROWSER to a program that opens addresses on the user's own machine. That
    # machine does not have the local files of this one.
    if os.environ.get("SSH_CONNECTION") and not (is_chosen and not address.startswith("file:")):
        return "this session is over ssh"
    has_display = sys.platform == "darwin" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    return None if has_display or is_chosen else "there is no display"
