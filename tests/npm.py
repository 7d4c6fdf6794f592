"""npm, if there is one: beside this Python, where [dev] brings it, or on the PATH."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

PATH = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])  # with which it runs
NPM = shutil.which("npm", path=PATH)
