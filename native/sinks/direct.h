// Finds out whether a tool is opspan's own collector, which takes ops directly (collectors/direct.h).
#pragma once

#include "collectors/direct.h"

namespace opspan::direct {

// Finds the library that contains this function of a tool, and returns the library's calls. Returns null if the library
// is not a collector of this version.
const Calls* find(void* function, Protocol protocol);

}  // namespace opspan::direct
