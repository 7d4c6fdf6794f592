// The calls of Python functions that one thread has open in one capture.
#pragma once

#include <cstdint>
#include <vector>

#include "capture/writer.h"

namespace opspan::python {

struct OpenCall {
  const void* frame;     // Python's frame of the function; for a function in C, of its caller
  capture::Place place;  // empty if the call is not recorded: a function of opspan, or a pause of the capture
  // The number of the innermost recorded call up to this one, plus 1; 0: there is none.
  uint64_t recorded;
  bool is_c;
  bool is_edge = false;  // whether it is in __enter__ or __exit__ of record_function, where no call is recorded
};

// The GIL guards it: Python calls profile functions under the GIL only.
struct OpenCalls {
  uint32_t turn = 0;      // the turn of the capture to which the calls belong. With a new turn the stack begins anew
  int64_t joined_ns = 0;  // when the thread took its slot by itself; 0: it was there before
  std::vector<OpenCall> calls;
};

// A program can enter functions without leaving them: each greenlet has a stack of its own. So the oldest calls are
// given up when so many are open.
inline constexpr size_t kMostOpen = 1 << 16;

}  // namespace opspan::python
