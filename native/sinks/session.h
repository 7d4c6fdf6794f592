// What a session of a sink is to every thread of its process, and to the processes that are forked inside it.
//
// Whether labels are wanted, and in which form, is one word in memory that the process shares with its forks: one store
// by the process that entered the session, its owner, turns labelling on, off, or ends the session in all of them.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdio>

#include "sinks/threads.h"

namespace opspan {

// number << 8 | form: the session of that number labels in that form; form 0: it pauses (a schedule). Any other number:
// the session is over.
using SessionWord = std::atomic<uint64_t>;
inline constinit SessionWord g_no_session{0};

// Read by every thread. Who starts and stops changes it first, without a lock: there must be none that a fork would
// have to hold beside those of threads.h and of the capture's writer.
class alignas(64) Session {
 public:
  // The form of labels now; 0: none are wanted.
  int form() {
    uint64_t now = word_.load(std::memory_order_relaxed)->load(std::memory_order_acquire);
    uint64_t difference = now ^ number_.load(std::memory_order_relaxed);
    if (difference > kForms) [[unlikely]]
      return end_in_fork();
    return static_cast<int>(difference);
  }
  uint32_t max_strings() const { return max_strings_.load(std::memory_order_relaxed); }

  // For whoever changes the session; false: it is not in that state, or somebody else is changing it.
  enum State : uint8_t { kOff, kChanging, kOn };
  bool begin_change(State from) { return state_.compare_exchange_strong(from, kChanging); }
  void finish_change(State to) { state_.store(to); }

  // Between change() and changed().
  bool start(int form, uint32_t max_strings);  // false: no memory
  void stop(opspan_stats* stats);

  // Only the owner can; in a fork these do nothing.
  void turn(bool on);
  // In a fork: from here on a session by itself, as it stands.
  bool adopt();
  void after_fork();
  // Called now and then where ranges are counted. A session whose owner was killed is over.
  [[gnu::cold]] void check_owner();

 private:
  static constexpr uint64_t kForms = 255;
  int sink() const;
  void forget();
  bool is_owner() const;
  bool share(uint64_t form);
  [[gnu::cold]] int end_in_fork();

  std::atomic<SessionWord*> word_{&g_no_session};
  std::atomic<uint64_t> number_{0};  // << 8
  std::atomic<uint32_t> max_strings_{0};
  std::atomic<State> state_{kOff};
  int form_ = 0;            // when it labels
  opspan_stats base_ = {};  // totals at the start
};

extern constinit Session g_sessions[OPSPAN_SINK_COUNT];

// Counts a range.
inline constexpr uint64_t kCheckEvery = 4096;
inline void count_range(Thread& here, int sink) {
  if (here.counters[sink].ranges.add() % kCheckEvery == 0) [[unlikely]]
    g_sessions[sink].check_owner();
}

// What sinks.h calls. The form, or -errno.
inline constexpr char kNoMemory[] = "there is no memory for a session";
int start_session(int sink, int form, uint32_t max_strings, char* error, size_t error_size);
void stop_session(int sink, opspan_stats* stats);

// How a start says no: -errno, and one sentence.
inline int fail(int error, const char* sentence, char* out, size_t size) {
  if (out && size) std::snprintf(out, size, "%s", sentence);
  return -error;
}

}  // namespace opspan
