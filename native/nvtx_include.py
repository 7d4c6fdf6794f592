"""Prints the folder in which the package nvidia-nvtx installed nvtx3/. CMake runs this script; opspan does not."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path


def main() -> str | None:
    spec = importlib.util.find_spec("nvidia")  # a namespace package; has <toolkit>/include/nvtx3
    roots = [Path(root) for root in (spec.submodule_search_locations or [])] if spec else []
    headers = [header for root in roots for header in root.glob("*/include/nvtx3/nvToolsExtPayload.h")]
    folders = sorted(header.parent.parent for header in headers)
    if not folders:
        return "no NVTX headers with extended payloads: pip install 'nvidia-nvtx>=13' (or set -DNVTX_INCLUDE_DIR=)"
    sys.stdout.write(f"{folders[-1]}\n")
    return None


if __name__ == "__main__":
    sys.exit(main())
