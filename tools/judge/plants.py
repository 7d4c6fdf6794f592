"""All plants (faults that are put into runs), by name: PLANTS."""

from __future__ import annotations

import plants_of_devices  # noqa: F401  # registers its plants, like the others
import plants_of_hosts  # noqa: F401
import plants_of_ranks  # noqa: F401
from planting import PLANTS

__all__ = ["PLANTS"]
