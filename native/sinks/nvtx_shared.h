// Declarations that both files of the NVTX sink use: nvtx.cpp (ops) and nvtx_user_ranges.cpp (a user's own ranges).
#pragma once

#include <string_view>

#include "capture/label.h"
#include "sinks/label_table.h"
#include "sinks/nvtx_calls.h"
#include "sinks/session.h"
#include "sinks/threads.h"

namespace opspan::nvtx {

// Registered names without sizes. There are only a few, unless a program makes up new names all the time; the limit is
// for such programs. Handles are valid as long as the process lives, so the table is kept from one session to the next.
inline constexpr uint32_t kMaxNames = 65536;
extern LabelTable g_names;

inline void* register_string(const char* text) { return nvtxDomainRegisterStringA(domain(), text); }
inline nvtxStringHandle_t handle(const LabelTable::Entry* entry) {
  return static_cast<nvtxStringHandle_t>(entry->handle);
}

using label::color_of;

// The values of Frame::where.
enum : uint8_t { kNothing = 0, kDefaultDomain = 1, kOpspanDomain = 2, kDirect = 3 };

// Callbacks of end_range (threads.h).
void pop(Frame& frame);
void end_out_of_order(Frame& frame);

}  // namespace opspan::nvtx
