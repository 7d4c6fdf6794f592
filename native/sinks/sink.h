// What a sink is to the others: a struct of functions and one for a user's own ranges (user_ranges.h), each of a sink's
// file.
#pragma once

#include "sinks/sinks.h"
#include "sinks/user_ranges.h"

namespace opspan {

struct Sink {
  const char* name;
  opspan_sink ops;      // torch's ranges, as the observer tells them
  bool (*listening)();  // opspan_listening
  int (*start)(const opspan_settings& settings, char* message, size_t message_size);  // opspan_start
  uint64_t (*stop)();  // ends what `start` began; how many units were lost. Null: nothing to end
  // A range can be ended out of order and by other threads (UserRangeSink::late does it), and not after `stop`. False:
  // a tool ends what is on top of its thread's stack, whenever that is.
  bool ends_anywhere;
};

// kNvtx and kNvtxUserRanges, kItt and kIttUserRanges, ...
#define OPSPAN_DECLARE(NAME, Name) extern const Sink k##Name;
OPSPAN_SINKS(OPSPAN_DECLARE)
#undef OPSPAN_DECLARE

extern const Sink* const kSinks[OPSPAN_SINK_COUNT];

}  // namespace opspan
