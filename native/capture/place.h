#pragma once

#include <cstdint>

namespace opspan::capture {

// Where a unit is: what it takes to finish it later. Copy freely; an outdated one is harmless.
struct Place {
  uint64_t owner = 0;    // Log::owner_ of the log it was written to; 0: nothing was written
  uint64_t number = 0;   // the unit's number on its thread
  int64_t start_ns = 0;  // of a range in half a line: its end is told from it; 0: it is none
  uint32_t tid = 0;
  uint32_t writer = 0;

  explicit operator bool() const { return owner != 0; }
};

}  // namespace opspan::capture
