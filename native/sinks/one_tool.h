// Finds out whether one library receives the calls of both NVTX and ITT, and decides which protocol is used then.
//
// `opspan run` gives a program one library for both protocols. The library would record each range twice if both
// protocols sent it. If there are two tools (nsys and VTune, or a second copy of opspan's library), each tool gets
// every range.
#pragma once

#include <atomic>
#include <cstdint>

#include "sinks/sinks.h"

namespace opspan {

inline constexpr uint32_t kBothTools = OPSPAN_TO_NVTX | OPSPAN_TO_ITT;

// Each variable has the bit (OPSPAN_TO_...) of the protocol that sends nothing, because the other protocol sends to the
// same tool. The first variable is for a user's range that goes to both protocols. The second variable is for ops while
// sessions of both protocols label ops. 0 means that both protocols send.
inline constinit std::atomic<uint32_t> g_silent_user_ranges{0};
inline constinit std::atomic<uint32_t> g_silent_ops{0};

inline uint32_t without_silent(uint32_t to) {
  return (to & kBothTools) == kBothTools ? to & ~g_silent_user_ranges.load(std::memory_order_relaxed) : to;
}

inline bool silent_for_ops(uint32_t bit) { return g_silent_ops.load(std::memory_order_relaxed) & bit; }

// Call compare_tools after NVTX or ITT has found a tool. Call set_labelling when ops begin or stop going to a sink.
// Both functions require the session lock.
void compare_tools();
void set_labelling(int sink, bool on);

}  // namespace opspan
