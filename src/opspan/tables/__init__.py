"""Defines the tables into which every source is translated. They depend neither on a vendor's tool nor on torch."""

from opspan.tables.issues import CODES, Issue, Issues
from opspan.tables.metadata import Metadata, Told
from opspan.tables.schema import TABLES
from opspan.tables.tables import Tables, side_by_side

__all__ = ["CODES", "TABLES", "Issue", "Issues", "Metadata", "Tables", "Told", "side_by_side"]
