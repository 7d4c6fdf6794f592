"""Prints the folder that holds nvtx3/, as the package nvidia-nvtx installed it. Run by CMake; not part of opspan."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path


def main() -> str | None:
    spec = importlib.util.find_spec("nvidia")  # a namespace: nvidia/<toolkit>/include/nvtx3
    roots = [Path(root) for root in (spec.submodule_search_locations or [])] if spec else []
    headers = [header for root in roots for header in root.glob("*/include/nvtx3/nvToolsExtPayload.h")]
    folders = sorted(header.parent.parent for header in headers)
    if not folders:
        return "no NVTX headers with extended payloads: pip install 'nvidia-nvtx>=13' (or set -DNVTX_INCLUDE_DIR=)"
    sys.stdout.write(f"{folders[-1]}\n")
    return None


if __name__ == "__main__":
    sys.exit(main())
