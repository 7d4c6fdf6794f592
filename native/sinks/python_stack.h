// The calls of Python functions that one thread has open in one capture.
#pragma once

#include <cstdint>
#include <vector>

#include "capture/writer.h"

namespace opspan::python {

struct OpenCall {
  const void* frame;     // Python's frame of the function; for a function in C, of its caller
  capture::Place place;  // empty if the call is not recorded: it is opspan's, or the capture is paused
  // The unit number, plus 1, of this call or, if it is not recorded, of the nearest recorded call around it; 0: none.
  uint64_t recorded;
  bool is_c;
  bool is_edge = false;  // true in __enter__ or __exit__ of record_function, where no call is recorded
};

// The GIL guards this struct, because Python calls profile functions only under the GIL.
struct OpenCalls {
  uint32_t turn = 0;      // Turns::turn when these calls were opened; a new turn begins a new stack
  int64_t joined_ns = 0;  // when opspan_python_join took the thread's slot; 0: never
  std::vector<OpenCall> calls;
};

// A program can enter functions without leaving them: each greenlet has a stack of its own. So when this many calls are
// open, all of them are given up.
inline constexpr size_t kMostOpen = 1 << 16;

}  // namespace opspan::python
