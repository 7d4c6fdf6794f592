// Finds out whether NVTX's tool and ITT's collector are the same library, and decides which protocol is used then.
//
// `opspan run` gives a program one library under both protocols, which would record twice what goes to both. Two tools
// (nsys and VTune, or a second copy of our library) each get everything.
#pragma once

#include <atomic>
#include <cstdint>

#include "sinks/sinks.h"

namespace opspan {

inline constexpr uint32_t kBothTools = OPSPAN_TO_NVTX | OPSPAN_TO_ITT;

// The protocol that keeps silent, as a bit of OPSPAN_TO_: for a user's range that goes to both, and for ops while both
// sessions label. 0: there are two tools, and neither is silent.
inline constinit std::atomic<uint32_t> g_silent_user_ranges{0};
inline constinit std::atomic<uint32_t> g_silent_ops{0};

inline uint32_t without_silent(uint32_t to) {
  return (to & kBothTools) == kBothTools ? to & ~g_silent_user_ranges.load(std::memory_order_relaxed) : to;
}

inline bool silent_for_ops(uint32_t bit) { return g_silent_ops.load(std::memory_order_relaxed) & bit; }

// Both require the session lock. compare_tools follows an attach of either tool; set_labelling says whether ops go to a
// sink from now on.
void compare_tools();
void set_labelling(int sink, bool on);

}  // namespace opspan
