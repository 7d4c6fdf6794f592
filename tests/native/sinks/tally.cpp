// Counts ranges, torch's and a user's own: as little as a sink can be.
#include "sinks/session.h"
#include "sinks/sink.h"

namespace opspan {
namespace {

Session& session() { return g_sessions[OPSPAN_TALLY]; }

void pop(Frame&) {}
void end_out_of_order(Frame&) {}

void begin(const void* key, const opspan_op* op) {
  Thread& here = Thread::here();
  here.set_number(op->thread);
  here.frames[OPSPAN_TALLY].pop_ended(pop);
  if (!here.next_frame(OPSPAN_TALLY, key, op->op_id)) return;
  if (session().form()) count_range(here, OPSPAN_TALLY);
  here.frames[OPSPAN_TALLY].push();
}

void end(const void* key, uint64_t op_id, uint64_t thread, const uintptr_t*, size_t) {
  end_range(Thread::here(), OPSPAN_TALLY, key, op_id, thread, pop, end_out_of_order);
}

bool is_listening() { return true; }

int start(const opspan_settings& settings, char* message, size_t message_size) {
  return start_session(OPSPAN_TALLY, OPSPAN_FORM_TEXT, settings.max_strings, message, message_size);
}

bool user_on() { return session().form() != 0; }
void user_begin(Thread& here, Frame& frame, const opspan_range&) {
  count_range(here, OPSPAN_TALLY);
  frame.where = 1;
}
void user_mark(Thread&, const opspan_range&) {}
uint64_t user_begin_async(Thread& here, uint64_t, const opspan_range&) { return count_range(here, OPSPAN_TALLY), 0; }
void user_end_async(uint64_t, uint64_t) {}

}  // namespace

const Sink kTally = {"tally", {begin, end}, is_listening, start, nullptr, true};
const UserRangeSink kTallyUserRanges = {user_on,   user_begin,       pop,           end_out_of_order,
                                        user_mark, user_begin_async, user_end_async};

}  // namespace opspan
