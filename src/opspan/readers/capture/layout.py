"""Holds the constants of the capture format: kinds, sources and flags of units (64-byte records).
docs/formats/capture.md explains them."""

from __future__ import annotations

VERSION = 5
UNIT_BYTES = 64
OPEN, CLOSED, FULL = range(3)  # states of a file

# Kinds of units.
RANGE, ASYNC, MARK, END, ATTRIBUTE, BLOB, IDS, RELATION, NAME, COUNTER, SCHEMA, STATE, FRAME, MEMORY = range(1, 15)
SHORT, MODEL, LIKE, BLOCK = range(15, 19)
CALL = 255  # halves.py makes it from a SHORT unit with the category PYTHON; not in files
PYTHON = 14  # the category of a unit that describes a call of a Python function
RANGES = (RANGE, ASYNC, MARK, FRAME)
# Sources of ranges.
TORCH, USER, NVTX, ITT = range(1, 5)
# Flags of units.
VALUE_MASK, VALUE_INT, VALUE_UINT, VALUE_DOUBLE = 3, 1, 2, 3
HAS_COLOR, HAS_FORWARD, FOREIGN_END, OWNER_BY_ID, HAS_LABEL, HAS_INPUTS, HAS_STACK = 4, 8, 16, 32, 64, 128, 256
HAS_OVERLOAD = 512
NO_OWNER = -1  # value of the owner field in a unit without an owner

# The low bits of a unit's key are the unit's number in its log. The other bits are the number of the log.
NUMBER_BITS = 40
NOWHERE = -1  # a key that no unit has
FURTHEST = 1 << 14  # neighbouring keys of a KeyRun differ by less than this, so the run's steps fit into 32 bits
