"""The model: columns that every source is translated to, no vendor, no torch."""

from opspan.trace.issues import CODES, Issue, Issues
from opspan.trace.schema import TABLES
from opspan.trace.trace import Metadata, Trace, side_by_side

__all__ = ["CODES", "TABLES", "Issue", "Issues", "Metadata", "Trace", "side_by_side"]
