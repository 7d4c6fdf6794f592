// The state that opspan keeps for each thread of the process, and how to find it. Torch has its own numbers for
// threads; tools use those of the OS. States are never freed, because another thread may be reading them. They are used
// again for new threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>

#include "collectors/direct.h"
#include "sinks/frames.h"
#include "sinks/label_table.h"
#include "sinks/python_stack.h"
#include "sinks/sinks.h"

namespace opspan {

// The forward ops of one thread, by sequence number. If several ops have the same number, the last one made the
// autograd node with that number. The table has the last 65,536 numbers, and is allocated when first used.
class Forwards {
 public:
  void put(int64_t sequence, uint64_t op_id);
  uint64_t find(int64_t sequence) const;  // returns 0 if the number is not in the table
  void clear();

 private:
  static constexpr uint64_t kEntries = 65536;
  struct Entry {
    std::atomic<uint64_t> sequence;  // sequence number + 1; 0, as in new memory, means empty
    std::atomic<uint64_t> op_id;
  };
  Entry* allocate();
  std::atomic<Entry*> entries_{nullptr};
};

// A counter that one thread writes and others read.
struct Counter {
  std::atomic<uint64_t> value{0};
  uint64_t add() {
    uint64_t now = value.load(std::memory_order_relaxed) + 1;
    value.store(now, std::memory_order_relaxed);
    return now;
  }
};

struct Counters {
  Counter ranges, late_ends, sizes_dropped, relations_missed, given_up, fields_dropped;
};

// An entry of a thread's cache: the label for these inputs, which is in a table of the process.
struct SizedLabel {
  capture::Digest inputs;
  const LabelTable::Entry* label;
  uint32_t file;  // 1: the entry is in use
};

struct Thread {
  std::atomic<uint64_t> number{0};  // torch's number of the thread; 0: not known yet
  uint32_t tid = 0;
  capture::Log* const* logs = nullptr;  // the thread's t_logs, its logs in the capture's writers
  Frames frames[OPSPAN_SINK_COUNT];
  python::OpenCalls python[capture::kWriters];
  Counters counters[OPSPAN_SINK_COUNT];
  int user_depth[OPSPAN_SINK_COUNT] = {};      // number of the user's own ranges that are open
  uint64_t announced = 0;                      // torch's id of the user's own range that is pushed next; 0: it has none
  uint32_t inherited[OPSPAN_SINK_COUNT] = {};  // number of ranges that were open when this process was forked
  Forwards forwards;
  capture::Names<void*> handles[2];                  // for each direct::Protocol, the tool's handles of ops' names
  capture::Table<SizedLabel, 1024> sized_labels[2];  // for each direct::Protocol, labels with sizes, or only sizes
  std::string text;                                  // a buffer in which labels are built

  // Returns the state that opspan's own collector has for this thread.
  void* collector_thread(direct::Protocol protocol, const direct::Calls& calls) {
    void*& entry = collector_threads_[protocol];
    return entry ? entry : entry = calls.thread();
  }

  // Returns this thread's known label for these inputs, or calls `find` for the label.
  template <class Find>
  const LabelTable::Entry* find_label(direct::Protocol protocol, const capture::Digest& inputs, Find&& find) {
    auto matches = [&](const SizedLabel& candidate) { return candidate.inputs == inputs; };
    auto [entry, is_found] = sized_labels[protocol].slot(inputs.first, 1, matches);
    if (is_found) [[likely]]
      return entry->label;
    const LabelTable::Entry* label = find();
    if (entry && label) *entry = {inputs, label, 1};
    return label;
  }

  // Returns the frame for a range that begins, see Frames::next.
  Frame* next_frame(int sink, const void* key, uint64_t id) {
    return frames[sink].next(key, id, [this, sink](Frame& frame) { give_up(sink, frame); });
  }

  static Thread& here() {
    Thread* thread = t_here;
    return thread ? *thread : enter();
  }
  // Sets torch's number of this thread, which comes with every range.
  void set_number(uint64_t torch_number) {
    if (torch_number != number.load(std::memory_order_relaxed) && torch_number) [[unlikely]]
      register_number(torch_number);
  }

 private:
  friend void forget_thread(void*);
  friend void after_fork();
  static constinit thread_local Thread* t_here;
  [[gnu::cold]] static Thread& enter();
  [[gnu::cold]] void give_up(int sink, Frame& frame);
  [[gnu::cold]] void register_number(uint64_t torch_number);
  void* collector_threads_[2] = {};
};

// Returns a digest of everything that is known about the inputs of an op. (An op without inputs has no values.)
inline capture::Digest digest_of(const opspan_op& op) {
  capture::Digest digest;
  digest.add(op.type_names != nullptr, op.values_count);
  digest.add(op.inputs, op.inputs_count);
  if (op.values_count) digest.add(op.values, op.values_count);
  return digest;
}

// Both functions find a thread by torch's number. If no session has seen the thread, the result is null or 0. The
// thread may have ended.
Thread* thread_of(uint64_t torch_number);
uint32_t tid_of(uint64_t torch_number);

// Returns the OS id of the thread on which the forward op of this backward op ran. Returns 0 if the thread is not
// known.
inline uint32_t forward_tid(const Thread& here, const opspan_op& op) {
  if (!op.forward_thread) return 0;
  return op.forward_thread == here.number.load(std::memory_order_relaxed) ? here.tid : tid_of(op.forward_thread);
}

// Returns the op as a message to opspan's own collector. Sizes and parent are not set.
inline direct::Op direct_op(const Thread& here, const opspan_op& op) {
  uint32_t forward = op.kind == OPSPAN_KIND_BACKWARD ? forward_tid(here, op) : 0;
  return {op.name, op.kind, forward, 0, nullptr, nullptr, op.sequence, op.op_id, 0};
}

uint32_t process_id();  // the process id, which is also the id of the main thread

// Locks for everything that may block. A fork holds both locks, so that the child can use them. Sessions start and stop
// under session_lock. slow_lock guards tables. A thread that needs both locks takes session_lock first.
std::mutex& session_lock();
std::mutex& slow_lock();

// Sums the counters of all threads. Does not set stats.lost.
opspan_stats totals(int sink);
void subtract(opspan_stats* from, const opspan_stats& what);

// Ends a range of another thread.
template <class EndOutOfOrder>
void end_elsewhere(Thread& here, int sink, Frame& frame, EndOutOfOrder&& end_out_of_order) {
  end_out_of_order(frame);
  frame.end.store(End::kElsewhere, std::memory_order_release);
  here.counters[sink].late_ends.add();
}

// Ends a range that may not be the innermost range of this thread.
template <class Pop, class EndOutOfOrder>
[[gnu::cold, gnu::noinline]] void end_range_out_of_order(Thread& here, int sink, const void* key, uint64_t id,
                                                         uint64_t number, Pop& pop_at_sink,
                                                         EndOutOfOrder& end_out_of_order) {
  Frames& frames = here.frames[sink];
  frames.pop_ended(pop_at_sink);
  if (Frame* deeper = frames.find(key, id)) {
    end_out_of_order(*deeper);
    deeper->end.store(End::kHere, std::memory_order_relaxed);
    frames.pop_ended(pop_at_sink);
  } else if (Thread* owner = thread_of(number); owner && owner != &here) {
    if (Frame* theirs = owner->frames[sink].find(key, id)) end_elsewhere(here, sink, *theirs, end_out_of_order);
  }
}

// Ends the range (key, id) that began on the thread with torch's number `number`. `pop_at_sink` ends the range at the
// sink. It runs on the same thread as begin, once the frame is on top. If it cannot run now, `end_out_of_order` is
// called now. This function is inlined, because it is most of what the end of a range costs.
template <class Pop, class EndOutOfOrder>
[[gnu::always_inline]] inline void end_range(Thread& here, int sink, const void* key, uint64_t id, uint64_t number,
                                             Pop&& pop_at_sink, EndOutOfOrder&& end_out_of_order) {
  Frames& frames = here.frames[sink];
  if (Frame* top = frames.top(); top && top->matches(key, id)) [[likely]] {
    pop_at_sink(*top);
    frames.pop();
    frames.pop_ended(pop_at_sink);
  } else {
    end_range_out_of_order(here, sink, key, id, number, pop_at_sink, end_out_of_order);
  }
}

}  // namespace opspan
