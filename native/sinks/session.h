// A session of a sink. All threads of a process see the same session, and so do the processes that are forked during
// it.
//
// One word in memory that all these processes share tells whether labels are wanted, and in which form. The process
// that started the session is its owner. It needs one store to this word to turn labelling on or off, or to end the
// session, in all these processes.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdio>

#include "sinks/threads.h"

namespace opspan {

// (number of the current session) << 8 | the form of its labels. If the form is 0, the session is paused (by a
// schedule). Sessions with other numbers have ended.
using SessionWord = std::atomic<uint64_t>;
inline constinit SessionWord g_no_session{0};

// The state of a session, which every thread reads. Starts and stops change it without a lock: a lock would have to be
// held during a fork, in addition to the locks of threads.h and of the capture's writer.
class alignas(64) Session {
 public:
  // Returns the current form of labels; 0: no labels are wanted.
  int form() {
    uint64_t now = word_.load(std::memory_order_relaxed)->load(std::memory_order_acquire);
    uint64_t difference = now ^ number_.load(std::memory_order_relaxed);
    if (difference > kForms) [[unlikely]]
      return end_in_fork();
    return static_cast<int>(difference);
  }
  uint32_t max_strings() const { return max_strings_.load(std::memory_order_relaxed); }

  // Every start and stop first calls begin_change, and calls finish_change at the end. begin_change returns false if
  // the state is not `from`, or if another thread is changing the state.
  enum State : uint8_t { kOff, kChanging, kOn };
  bool begin_change(State from) { return state_.compare_exchange_strong(from, kChanging); }
  void finish_change(State to) { state_.store(to); }

  // Call start() and stop() only between begin_change() and finish_change().
  bool start(int form, uint32_t max_strings);  // returns false if there is no memory
  void stop(opspan_stats* stats);

  // Turns labelling on or off, if this process is the session's owner. Otherwise does nothing.
  void turn(bool on);
  // Makes this forked process the owner of the session that it has from its parent. The form stays the same.
  bool adopt();
  void after_fork();
  // Ends the session if its owner was killed. The function that counts ranges calls this from time to time.
  [[gnu::cold]] void check_owner();

 private:
  static constexpr uint64_t kForms = 255;
  int sink() const;
  void forget();
  bool is_owner() const;
  bool share(uint64_t form);
  [[gnu::cold]] int end_in_fork();

  std::atomic<SessionWord*> word_{&g_no_session};
  std::atomic<uint64_t> number_{0};  // number of the session << 8
  std::atomic<uint32_t> max_strings_{0};
  std::atomic<State> state_{kOff};
  int form_ = 0;            // the form of labels while labelling is on
  opspan_stats base_ = {};  // the process's totals when the session started
};

extern constinit Session g_sessions[OPSPAN_SINK_COUNT];

// Counts a range. At every kCheckEvery-th range of a thread, checks whether the owner still exists.
inline constexpr uint64_t kCheckEvery = 4096;
inline void count_range(Thread& here, int sink) {
  if (here.counters[sink].ranges.add() % kCheckEvery == 0) [[unlikely]]
    g_sessions[sink].check_owner();
}

// opspan_start and opspan_stop for every sink, see sinks.h. start_session returns the form, or -errno.
inline constexpr char kNoMemory[] = "there is no memory for a session";
int start_session(int sink, int form, uint32_t max_strings, char* error, size_t error_size);
void stop_session(int sink, opspan_stats* stats);

// Reports a failed start: writes the sentence and returns -errno.
inline int fail(int error, const char* sentence, char* out, size_t size) {
  if (out && size) std::snprintf(out, size, "%s", sentence);
  return -error;
}

}  // namespace opspan
