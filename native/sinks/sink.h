// A sink, as other files see it: one struct of functions, and a second struct for a user's own ranges (user_ranges.h).
// Each sink has files of its own.
#pragma once

#include "sinks/sinks.h"
#include "sinks/user_ranges.h"

namespace opspan {

struct Sink {
  const char* name;
  opspan_sink ops;      // for torch's ranges; the observer calls them
  bool (*listening)();  // opspan_listening
  int (*start)(const opspan_settings& settings, char* message, size_t message_size);  // opspan_start
  uint64_t (*stop)();  // ends a session; returns how many units were lost. Null: nothing to do
  // True if a range can end out of order and on other threads (UserRangeSink::end_out_of_order), but not after `stop`.
  // False if the tool ends whatever range is on top of its thread's stack; the end may come at any time.
  bool ends_anywhere;
};

// Declares kNvtx, kItt and so on.
#define OPSPAN_DECLARE(NAME, Name) extern const Sink k##Name;
OPSPAN_SINKS(OPSPAN_DECLARE)
#undef OPSPAN_DECLARE

extern const Sink* const kSinks[OPSPAN_SINK_COUNT];

}  // namespace opspan
