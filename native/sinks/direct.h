// Whether a tool is opspan's own collector, which takes ops as a whole (collectors/direct.h).
#pragma once

#include "collectors/direct.h"

namespace opspan::direct {

// The calls of the library that this function of a tool's is in. Null: it is no collector of this version.
const Calls* find(void* function, Protocol protocol);

}  // namespace opspan::direct
