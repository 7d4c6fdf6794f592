// Finds out whether NVTX's tool and ITT's collector are the same library, and decides which protocol is used then.
//
// `opspan run` gives a program one library under both protocols, which would record a range two times if both protocols
// sent it. If there are two tools (nsys and VTune, or a second copy of our library), each gets everything.
#pragma once

#include <atomic>
#include <cstdint>

#include "sinks/sinks.h"

namespace opspan {

inline constexpr uint32_t kBothTools = OPSPAN_TO_NVTX | OPSPAN_TO_ITT;

// Each variable has the bit (OPSPAN_TO_...) of the protocol that sends nothing, because the other protocol reaches the
// same tool. The first variable is for a user's range that goes to both protocols. The second is for ops while both
// sessions label. 0 means that there are two tools, so both protocols send.
inline constinit std::atomic<uint32_t> g_silent_user_ranges{0};
inline constinit std::atomic<uint32_t> g_silent_ops{0};

inline uint32_t without_silent(uint32_t to) {
  return (to & kBothTools) == kBothTools ? to & ~g_silent_user_ranges.load(std::memory_order_relaxed) : to;
}

inline bool silent_for_ops(uint32_t bit) { return g_silent_ops.load(std::memory_order_relaxed) & bit; }

// Call compare_tools after either tool has attached. set_labelling says whether ops go to a sink from now on. Both
// functions require the session lock.
void compare_tools();
void set_labelling(int sink, bool on);

}  // namespace opspan
