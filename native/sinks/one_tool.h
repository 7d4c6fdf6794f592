// Whether NVTX's tool and ITT's collector are one and the same library, and which of the two is spoken to then.
//
// `opspan run` gives a program one library under both protocols: what went to both would be recorded twice. Two tools
// (nsys and VTune, or a copy of our library a second time) each get everything, as before.
#pragma once

#include <atomic>
#include <cstdint>

#include "sinks/sinks.h"

namespace opspan {

inline constexpr uint32_t kBothTools = OPSPAN_TO_NVTX | OPSPAN_TO_ITT;

// The protocol that keeps silent, as a bit of OPSPAN_TO_: for a user's range that goes to both, and for ops while both
// sessions label. 0: none, there are two tools.
inline constinit std::atomic<uint32_t> g_silent_user_ranges{0};
inline constinit std::atomic<uint32_t> g_silent_ops{0};

inline uint32_t without_silent(uint32_t to) {
  return (to & kBothTools) == kBothTools ? to & ~g_silent_user_ranges.load(std::memory_order_relaxed) : to;
}

inline bool silent_for_ops(uint32_t bit) { return g_silent_ops.load(std::memory_order_relaxed) & bit; }

// Under the session lock: one of the two has attached; ops go to a sink from here on, or no more.
void compare_tools();
void set_labelling(int sink, bool on);

}  // namespace opspan
