// A user's own ranges: opspan_push and similar functions pass them to every sink at which somebody listens.
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

struct AsyncRange {
  uint32_t to;
  uint64_t tokens[OPSPAN_SINK_COUNT];
};
// The map is never freed (threads.cpp says why); slow_lock() guards it.
auto& async_ranges() {
  static auto* ranges = new std::unordered_map<uint64_t, AsyncRange>;
  return *ranges;
}

// Calls `action(number of the sink, sink)` for each sink in `to`.
template <class Action>
void for_each_sink(uint32_t to, Action&& action) {
  for (int i = 0; i < OPSPAN_SINK_COUNT; ++i) {
    if (to & 1u << i) action(i, *kUserRangeSinks[i]);
  }
}

// The sinks that have taken at least one range so far; pops skip all other sinks. A range that was pushed before a sink
// took its first range has no frame at that sink. The pop of that range cannot find another range's frame by mistake,
// because all ranges that were pushed later have already been popped.
std::atomic<uint32_t> g_used_sinks{0};

// Returns the sinks in `to` that take a range now.
uint32_t listening_sinks(uint32_t to) {
  uint32_t listening = 0;
  for_each_sink(to, [&](int number, const UserRangeSink& sink) {
    bool wanted = sink.is_on() && (!(to & OPSPAN_IN_SESSION << number) || g_sessions[number].form());
    listening |= wanted ? 1u << number : 0;
  });
  listening = without_silent(listening);
  if (listening & ~g_used_sinks.load(std::memory_order_relaxed))
    g_used_sinks.fetch_or(listening, std::memory_order_relaxed);
  return listening;
}

// The key of detached ranges. opspan_pop ends only ranges without a key.
constexpr char kDetached = 0;

uint32_t used_sinks(uint32_t to) { return to & g_used_sinks.load(std::memory_order_relaxed); }

}  // namespace

uint64_t next_user_range_id() {
  static std::atomic<uint64_t> last{0};
  uint64_t id = last.fetch_add(1, std::memory_order_relaxed) + 1;
  if (id % kCheckEvery == 0) [[unlikely]] {
    for (Session& session : g_sessions) session.check_owner();
  }
  return id;
}

}  // namespace opspan

using namespace opspan;

int opspan_push(const opspan_range* range, uint32_t to) {
  uint32_t listening = listening_sinks(to);
  if (!listening) return -1;
  int depth = -1;
  Thread& here = Thread::here();
  uint64_t id = next_user_range_id();
  for_each_sink(used_sinks(to), [&](int number, const UserRangeSink& sink) {
    Frames& frames = here.frames[number];
    frames.pop_ended(sink.pop);
    Frame* frame = here.next_frame(number, nullptr, id);
    if (!frame) return;
    // The range gets a frame at each sink in use, even if nobody listens there now. A tool may attach before the range
    // is popped.
    if (listening & 1u << number) {
      sink.begin(here, *frame, *range);
      if (depth < 0) depth = here.user_depth[number];
    }
    frames.push();
    ++here.user_depth[number];
  });
  here.announced = 0;
  return depth;
}

int opspan_pop(uint32_t to) {
  int depth = -1;
  Thread& here = Thread::here();
  for_each_sink(used_sinks(to), [&](int number, const UserRangeSink& sink) {
    Frame* frame = here.frames[number].innermost_user_range();
    if (!frame) return;
    --here.user_depth[number];
    if (depth < 0 && frame->where) depth = here.user_depth[number];
    end_range(here, number, nullptr, frame->id.load(std::memory_order_relaxed), 0, sink.pop, sink.end_out_of_order);
  });
  return depth;
}

uint64_t opspan_detach(uint32_t to, uint64_t* thread) {
  uint64_t number = 0;
  Thread& here = Thread::here();
  for_each_sink(used_sinks(to), [&](int sink, const UserRangeSink&) {
    Frame* frame = here.frames[sink].innermost_user_range();
    if (!frame) return;
    --here.user_depth[sink];
    number = frame->id.load(std::memory_order_relaxed);
    frame->key.store(&kDetached, std::memory_order_relaxed);
  });
  *thread = reinterpret_cast<uintptr_t>(&here);
  return number;
}

void opspan_end_detached(uint64_t number, uint64_t thread, uint32_t to) {
  Thread& here = Thread::here();
  auto* owner = reinterpret_cast<Thread*>(static_cast<uintptr_t>(thread));  // threads are never freed
  for_each_sink(used_sinks(to), [&](int at, const UserRangeSink& sink) {
    if (owner == &here) {
      end_range(here, at, &kDetached, number, 0, sink.pop, sink.end_out_of_order);
    } else if (Frame* frame = owner->frames[at].find(&kDetached, number)) {
      end_elsewhere(here, at, *frame, sink.end_out_of_order);
    }
  });
}

void opspan_mark(const opspan_range* range, uint32_t to) {
  for_each_sink(listening_sinks(to), [&](int, const UserRangeSink& sink) { sink.mark(Thread::here(), *range); });
}

uint64_t opspan_range_start(const opspan_range* range, uint32_t to) {
  AsyncRange async = {};
  uint64_t id = next_user_range_id();
  for_each_sink(listening_sinks(to), [&](int number, const UserRangeSink& sink) {
    async.tokens[number] = sink.begin_async(Thread::here(), id, *range);
    async.to |= 1u << number;
  });
  if (!async.to) return 0;
  std::lock_guard guard(slow_lock());
  async_ranges().emplace(id, async);
  return id;
}

void opspan_range_end(uint64_t id) {
  AsyncRange async;
  {
    std::lock_guard guard(slow_lock());
    auto entry = async_ranges().find(id);
    if (entry == async_ranges().end()) return;
    async = entry->second;
    async_ranges().erase(entry);
  }
  for_each_sink(async.to, [&](int number, const UserRangeSink& sink) { sink.end_async(id, async.tokens[number]); });
}
