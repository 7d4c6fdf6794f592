"""All plants: PLANTS, by name."""

from __future__ import annotations

import plants_of_devices  # noqa: F401  # registers its plants, as the others do
import plants_of_hosts  # noqa: F401
import plants_of_ranks  # noqa: F401
from planting import PLANTS, Planted

__all__ = ["PLANTS", "Planted"]
