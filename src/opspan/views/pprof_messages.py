"""Builds the protobuf messages of pprof's profiles at run time, with only the fields that opspan writes.

The format is https://github.com/google/pprof/blob/main/proto/profile.proto. Only the numbers and types of its fields
are repeated here.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_PACKAGE = "perftools.profiles"
# Message -> field -> its number and type. A type in brackets stands for a list of that type.
_MESSAGES = {
    "Profile": {
        "sample_type": (1, "[ValueType]"),
        "sample": (2, "[Sample]"),
        "mapping": (3, "[Mapping]"),
        "location": (4, "[Location]"),
        "function": (5, "[Function]"),
        "string_table": (6, "[string]"),
        "time_nanos": (9, "int64"),
        "duration_nanos": (10, "int64"),
        "period_type": (11, "ValueType"),
        "period": (12, "int64"),
        "comment": (13, "[int64]"),
        "default_sample_type": (14, "int64"),
    },
    "ValueType": {"type": (1, "int64"), "unit": (2, "int64")},
    "Sample": {"location_id": (1, "[uint64]"), "value": (2, "[int64]"), "label": (3, "[Label]")},
    "Label": {"key": (1, "int64"), "str": (2, "int64")},
    "Mapping": {"id": (1, "uint64"), "filename": (5, "int64"), "has_functions": (7, "bool")},
    "Location": {"id": (1, "uint64"), "mapping_id": (2, "uint64"), "line": (4, "[Line]")},
    "Line": {"function_id": (1, "uint64"), "line": (2, "int64")},
    "Function": {"id": (1, "uint64"), "name": (2, "int64"), "filename": (4, "int64"), "start_line": (5, "int64")},
}


def new_profile() -> Any:
    """Returns an empty message Profile."""
    field = descriptor_pb2.FieldDescriptorProto
    scalars = {
        "int64": field.TYPE_INT64,
        "uint64": field.TYPE_UINT64,
        "string": field.TYPE_STRING,
        "bool": field.TYPE_BOOL,
    }
    file = descriptor_pb2.FileDescriptorProto(name="opspan/profile.proto", package=_PACKAGE, syntax="proto3")
    for message, fields in _MESSAGES.items():
        described = file.message_type.add(name=message)
        for name, (number, of) in fields.items():
            kind = of.strip("[]")
            added = described.field.add(name=name, number=number)
            added.label = field.LABEL_REPEATED if of != kind else field.LABEL_OPTIONAL
            if kind in scalars:
                added.type = scalars[kind]
            else:
                added.type, added.type_name = field.TYPE_MESSAGE, f".{_PACKAGE}.{kind}"
    # Use a separate pool, because the program may have all of profile.proto in the default pool.
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.Profile"))()
