// Declarations that both files of the ITT sink use: itt.cpp (ops) and itt_user_ranges.cpp (a user's own ranges).
#pragma once

#include <string_view>

#include "capture/label.h"
#include "sinks/itt_calls.h"
#include "sinks/threads.h"

namespace opspan::itt {

// The domain `opspan`; null until a collector has been found.
extern std::atomic<Domain*> g_domain;
Domain* torch_domain();
// The direct calls of opspan's own collector; null if that collector has not been the tool so far.
extern std::atomic<const direct::Calls*> g_direct;

// The values of Frame::where.
enum : uint8_t { kNothing = 0, kTorchDomain = 1, kOpspanDomain = 2, kDirect = 3 };

inline Id op_id(uint64_t number) { return {number, label::kTag, label::kOps}; }
inline Id user_range_id(uint64_t number) { return {number, label::kTag, label::kUsers}; }
inline Id id_of(const Frame& frame) {
  uint64_t number = frame.id.load(std::memory_order_relaxed);
  return frame.key.load(std::memory_order_relaxed) ? op_id(number) : user_range_id(number);
}
// Returns the id of the task around a range that begins now.
Id parent_of(const Frames& frames);

// Returns the handle of a name; null if there are `limit` names already. There is a limit because most collectors
// search a list for each new name, and never free names.
inline constexpr uint32_t kMaxNames = 65536;
StringHandle* handle(const char* text, uint32_t limit);
// Returns the handle of one of opspan's own names, which are few.
StringHandle* key(const char* name);

// Callbacks of end_range (threads.h).
void pop(Frame& frame);
void end_out_of_order(Frame& frame);

}  // namespace opspan::itt
