// The functions of one sink for a user's own ranges. They are not part of the struct Sink (sink.h), so that a push
// needs only one look-up.
#pragma once

#include <cstdint>

#include "sinks/threads.h"

namespace opspan {

struct UserRangeSink {
  bool (*is_on)();  // returns whether the sink takes ranges now
  // Opens the range at the tool. Sets the fields of `frame` that `pop` needs to end the range.
  void (*begin)(Thread& here, Frame& frame, const opspan_range& range);
  void (*pop)(Frame& frame);  // pop and end_out_of_order are callbacks of end_range (threads.h)
  void (*end_out_of_order)(Frame& frame);
  void (*mark)(Thread& here, const opspan_range& range);
  // For ranges that may end on any thread. `id` is the range's number. The result of begin_async is passed to end_async
  // as `token`.
  uint64_t (*begin_async)(Thread& here, uint64_t id, const opspan_range& range);
  void (*end_async)(uint64_t id, uint64_t token);
};

uint64_t next_user_range_id();

#define OPSPAN_DECLARE(NAME, Name) extern const UserRangeSink k##Name##UserRanges;
OPSPAN_SINKS(OPSPAN_DECLARE)
#undef OPSPAN_DECLARE

}  // namespace opspan
