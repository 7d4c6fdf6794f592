"""The model: columns that every source is translated to, no vendor, no torch."""

from opspan.tables.issues import CODES, Issue, Issues
from opspan.tables.schema import TABLES
from opspan.tables.tables import Metadata, Tables, side_by_side

__all__ = ["CODES", "TABLES", "Issue", "Issues", "Metadata", "Tables", "side_by_side"]
