"""Defines the kinds of devices and of scopes, with torch's numbers and names, without importing torch."""

from __future__ import annotations

import enum
from typing import Any

from opspan.labels import KIND_NAMES, Kind


class DeviceType(enum.Enum):
    """A copy of torch.autograd.DeviceType. A member equals torch's member of the same name, if ours is on the left of
    `==`."""

    CPU = 0
    CUDA = 1
    MKLDNN = 2
    OPENGL = 3
    OPENCL = 4
    IDEEP = 5
    HIP = 6
    FPGA = 7
    MAIA = 8
    XLA = 9
    Vulkan = 10
    Metal = 11
    XPU = 12
    MPS = 13
    Meta = 14
    HPU = 15
    VE = 16
    Lazy = 17
    IPU = 18
    MTIA = 19
    PrivateUse1 = 20

    @classmethod
    def of(cls, device: Any) -> DeviceType:
        """Takes a member of torch's DeviceType, or a number. Returns the member of this class with the same number."""
        return cls(int(device))

    def __int__(self) -> int:
        return int(self.value)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, DeviceType):
            return self is other
        return type(other).__name__ == "DeviceType" and getattr(other, "name", None) == self.name

    def __hash__(self) -> int:
        return hash(self.value)


# Devices on which torch counts time.
TIMED = frozenset({DeviceType.CUDA, DeviceType.PrivateUse1, DeviceType.MTIA, DeviceType.HPU, DeviceType.XPU})
# Devices whose events are added to a table's total. HPU is left out, as in torch.
TOTALLED = TIMED - {DeviceType.HPU}

# Numbers of torch's enum at::RecordScope.
BACKWARD_SCOPE = 1
USER_SCOPE = 7
SCOPES: dict[Kind, int] = {
    Kind.UNKNOWN: 0,
    Kind.OP: 0,
    Kind.BACKWARD: BACKWARD_SCOPE,
    Kind.ENGINE: 0,
    Kind.USER: USER_SCOPE,
    Kind.MODULE: USER_SCOPE,
    Kind.STEP: USER_SCOPE,
    Kind.SCRIPT: 2,
    Kind.DTYPE: 3,
    Kind.CLASS: 4,
    Kind.FEATURE: 5,
    Kind.LITE: 6,
    Kind.STATIC_OP: 8,
    Kind.STATIC_MODEL: 9,
}
SCOPE_OF = {name: SCOPES[Kind(number)] for number, name in enumerate(KIND_NAMES)}


def is_user(kind: str | None) -> bool:
    return SCOPE_OF.get(kind or "", 0) == USER_SCOPE
