// Finds out whether a tool is opspan's own collector, which takes ops by direct calls (collectors/direct.h).
#pragma once

#include "collectors/direct.h"

namespace opspan::direct {

// Finds the library that contains this function of a tool, and returns the library's direct calls. Returns null if the
// library is not opspan's collector, has another version, or collects nothing.
const Calls* find(void* function, Protocol protocol);

}  // namespace opspan::direct
