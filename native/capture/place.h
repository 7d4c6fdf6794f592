// The words for the life of a range, the same in all of native/:
//
//   begin    The range opens: its unit is written, or its tool is called. The result (a Place or a Frame) is needed to
//            end the range.
//   end      The range ends: its end is written, with the time of the call.
//   pop      The range's frame leaves the stack of its thread's open ranges. Tools such as NVTX end whatever is on top
//            of their own stack, so they get an end only when the range's frame is popped.
//   give up  The range is forgotten, because nobody will end it on this thread. It stays open in the file, unless
//            another thread has ended it.
//
// Most ranges are ended and popped in one step. A range that ends out of order (below others that are still open, or on
// another thread) is ended at once, and popped when it is on top. Async ranges (begin_async, end_async) are on no stack
// and end on any thread.
//
// Sessions and recordings start and stop, files open and close. Other words (push, start, submit) belong to NVTX or
// ITT.
#pragma once

#include <cstdint>

namespace opspan::capture {

// Says where a unit is, so that it can be ended later. Copy it freely; an outdated Place does no harm.
struct Place {
  uint64_t owner = 0;    // Log::owner_ of the log that wrote the unit; 0: nothing was written
  uint64_t number = 0;   // the unit's number on its thread
  int64_t start_ns = 0;  // start of a range in half a cache line, needed to write its end; 0: any other unit
  uint32_t tid = 0;
  uint32_t writer = 0;

  explicit operator bool() const { return owner != 0; }
};

}  // namespace opspan::capture
