// Finds out whether a tool is opspan's own collector, which takes ops directly (collectors/direct.h).
#pragma once

#include "collectors/direct.h"

namespace opspan::direct {

// Returns the calls of the library that this function of a tool is in; null if that is not a collector of this version.
const Calls* find(void* function, Protocol protocol);

}  // namespace opspan::direct
