// A user's own ranges: opspan_push and the like, handed to every sink that somebody listens at.
#include "sinks/user_ranges.h"

#include <mutex>
#include <unordered_map>

#include "sinks/one_tool.h"
#include "sinks/session.h"

namespace opspan {
namespace {

#define OPSPAN_ADDRESS(NAME, Name) &k##Name##UserRanges,
const UserRangeSink* const kUserRangeSinks[OPSPAN_SINK_COUNT] = {OPSPAN_SINKS(OPSPAN_ADDRESS)};
#undef OPSPAN_ADDRESS

struct Async {
  uint32_t to;
  uint64_t begun[OPSPAN_SINK_COUNT];
};
// On the heap for good, see threads.cpp; under the slow lock.
auto& asyncs() {
  static auto* made = new std::unordered_map<uint64_t, Async>;
  return *made;
}

// Calls `action(sink number, sink)` for each sink of `to`.
template <class Action>
void each(uint32_t to, Action&& action) {
  for (int i = 0; i < OPSPAN_SINK_COUNT; ++i) {
    if (to & 1u << i) action(i, *kUserRangeSinks[i]);
  }
}

// Sinks that ever took a range. The others are left alone: what was pushed before a sink's first range has no frame
// there, and whoever pops it finds none, as what was pushed since has been popped before it.
std::atomic<uint32_t> g_used{0};

// Those of `to` that a range goes to now.
uint32_t listening(uint32_t to) {
  uint32_t on = 0;
  each(to, [&](int number, const UserRangeSink& sink) {
    bool wanted = sink.on() && (!(to & OPSPAN_IN_SESSION << number) || g_sessions[number].form());
    on |= wanted ? 1u << number : 0;
  });
  on = once(on);
  if (on & ~g_used.load(std::memory_order_relaxed)) g_used.fetch_or(on, std::memory_order_relaxed);
  return on;
}

uint32_t used(uint32_t to) { return to & g_used.load(std::memory_order_relaxed); }

}  // namespace

uint64_t next_user_range_id() {
  static std::atomic<uint64_t> last{0};
  uint64_t id = last.fetch_add(1, std::memory_order_relaxed) + 1;
  if (id % kLookEvery == 0) [[unlikely]] {
    for (Session& session : g_sessions) session.look_after_owner();
  }
  return id;
}

}  // namespace opspan

using namespace opspan;

int opspan_push(const opspan_range* range, uint32_t to) {
  uint32_t on = listening(to);
  if (!on) return -1;
  int depth = -1;
  Thread& here = Thread::here();
  uint64_t id = next_user_range_id();
  each(used(to), [&](int number, const UserRangeSink& sink) {
    Frames& frames = here.frames[number];
    frames.settle(sink.close);
    Frame* frame = here.next_frame(number, nullptr, id);
    if (!frame) return;
    // Where nobody is told now a frame is opened all the same: whoever pops it may listen by then.
    if (on & 1u << number) {
      sink.begin(here, *frame, *range);
      if (depth < 0) depth = here.user_depth[number];
    }
    frames.open();
    ++here.user_depth[number];
  });
  return depth;
}

int opspan_pop(uint32_t to) {
  int depth = -1;
  Thread& here = Thread::here();
  each(used(to), [&](int number, const UserRangeSink& sink) {
    Frame* frame = here.frames[number].innermost_user_range();
    if (!frame) return;
    --here.user_depth[number];
    if (depth < 0 && frame->where) depth = here.user_depth[number];
    end_range(here, number, nullptr, frame->id.load(std::memory_order_relaxed), 0, sink.close, sink.late);
  });
  return depth;
}

void opspan_mark(const opspan_range* range, uint32_t to) {
  each(listening(to), [&](int, const UserRangeSink& sink) { sink.mark(Thread::here(), *range); });
}

uint64_t opspan_range_start(const opspan_range* range, uint32_t to) {
  Async async = {};
  uint64_t id = next_user_range_id();
  each(listening(to), [&](int number, const UserRangeSink& sink) {
    async.begun[number] = sink.begin_async(Thread::here(), id, *range);
    async.to |= 1u << number;
  });
  if (!async.to) return 0;
  std::lock_guard guard(slow_lock());
  asyncs().emplace(id, async);
  return id;
}

void opspan_range_end(uint64_t id) {
  Async async;
  {
    std::lock_guard guard(slow_lock());
    auto found = asyncs().find(id);
    if (found == asyncs().end()) return;
    async = found->second;
    asyncs().erase(found);
  }
  each(async.to, [&](int number, const UserRangeSink& sink) { sink.end_async(id, async.begun[number]); });
}
