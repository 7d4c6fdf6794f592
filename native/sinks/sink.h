// A sink, as other files see it: one struct of functions for torch's ranges and the session, and a second struct for a
// user's own ranges (user_ranges.h). Each sink has files of its own.
#pragma once

#include "sinks/sinks.h"
#include "sinks/user_ranges.h"

namespace opspan {

struct Sink {
  const char* name;
  opspan_sink ops;      // for torch's ranges; the observer calls them
  bool (*listening)();  // see opspan_listening
  int (*start)(const opspan_settings& settings, char* message, size_t message_size);  // see opspan_start
  uint64_t (*stop)();  // ends a session, returns the number of lost units; may be null
  // True if the sink can end a range out of order and on another thread (UserRangeSink::end_out_of_order), while the
  // session is on. False if the tool always ends the range on top of the thread's stack, even after the session.
  bool ends_anywhere;
};

// Declares kNvtx, kItt and so on.
#define OPSPAN_DECLARE(NAME, Name) extern const Sink k##Name;
OPSPAN_SINKS(OPSPAN_DECLARE)
#undef OPSPAN_DECLARE

extern const Sink* const kSinks[OPSPAN_SINK_COUNT];

}  // namespace opspan
