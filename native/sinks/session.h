// A session of a sink, as all threads of its process see it, and the processes that are forked inside it.
//
// One word in memory that the process shares with the processes that it forks says whether labels are wanted, and in
// which form. The process that started the session, its owner, needs one store to turn labelling on or off, or to end
// the session, for all these processes.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdio>

#include "sinks/threads.h"

namespace opspan {

// The value is the number of the current session << 8 | the form of its labels. If the form is 0, the session is paused
// (by a schedule). Sessions with other numbers have ended.
using SessionWord = std::atomic<uint64_t>;
inline constinit SessionWord g_no_session{0};

// The state of a session, which every thread reads. Starts and stops change it without a lock, because a fork would
// have to hold that lock in addition to the locks of threads.h and of the capture's writer.
class alignas(64) Session {
 public:
  // Returns the form of labels now; 0: no labels are wanted.
  int form() {
    uint64_t now = word_.load(std::memory_order_relaxed)->load(std::memory_order_acquire);
    uint64_t difference = now ^ number_.load(std::memory_order_relaxed);
    if (difference > kForms) [[unlikely]]
      return end_in_fork();
    return static_cast<int>(difference);
  }
  uint32_t max_strings() const { return max_strings_.load(std::memory_order_relaxed); }

  // Every start and stop calls begin_change first and finish_change last. begin_change returns false if the state is
  // not `from`, or if another thread is changing the state.
  enum State : uint8_t { kOff, kChanging, kOn };
  bool begin_change(State from) { return state_.compare_exchange_strong(from, kChanging); }
  void finish_change(State to) { state_.store(to); }

  // Both start() and stop() are called between begin_change() and finish_change().
  bool start(int form, uint32_t max_strings);  // false: there is no memory
  void stop(opspan_stats* stats);

  // Turns labelling on or off. Only the owner can do so; in a forked process this does nothing.
  void turn(bool on);
  // Makes this forked process the owner of its session from now on. The form stays the same.
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
  opspan_stats base_ = {};  // the totals when the session started
};

extern constinit Session g_sessions[OPSPAN_SINK_COUNT];

// Counts a range. Once every kCheckEvery ranges, checks the owner.
inline constexpr uint64_t kCheckEvery = 4096;
inline void count_range(Thread& here, int sink) {
  if (here.counters[sink].ranges.add() % kCheckEvery == 0) [[unlikely]]
    g_sessions[sink].check_owner();
}

// Start and stop, as sinks.h declares them. start_session returns the form, or -errno.
inline constexpr char kNoMemory[] = "there is no memory for a session";
int start_session(int sink, int form, uint32_t max_strings, char* error, size_t error_size);
void stop_session(int sink, opspan_stats* stats);

// Reports a failed start: writes the sentence and returns -errno.
inline int fail(int error, const char* sentence, char* out, size_t size) {
  if (out && size) std::snprintf(out, size, "%s", sentence);
  return -error;
}

}  // namespace opspan
