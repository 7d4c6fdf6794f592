// Counts ranges, torch's and a user's own: as little as a sink can be.
#include "sinks/session.h"
#include "sinks/sink.h"

namespace opspan {
namespace {

Session& session() { return g_sessions[OPSPAN_TALLY]; }

void close(Frame&) {}
void late(Frame&) {}

void begin(const void* key, const opspan_op* op) {
  Thread& here = Thread::here();
  here.know(op->thread);
  here.frames[OPSPAN_TALLY].settle(close);
  if (!here.next_frame(OPSPAN_TALLY, key, op->op_id)) return;
  if (session().form()) count_range(here, OPSPAN_TALLY);
  here.frames[OPSPAN_TALLY].open();
}

void end(const void* key, uint64_t op_id, uint64_t thread, const uintptr_t*, size_t) {
  end_range(Thread::here(), OPSPAN_TALLY, key, op_id, thread, close, late);
}

bool is_listening() { return true; }

int start(const opspan_settings& settings, char* said, size_t said_size) {
  return start_session(OPSPAN_TALLY, OPSPAN_FORM_TEXT, settings.max_strings, said, said_size);
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
const UserRangeSink kTallyUserRanges = {user_on, user_begin, close, late, user_mark, user_begin_async, user_end_async};

}  // namespace opspan
