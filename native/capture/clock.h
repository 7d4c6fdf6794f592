// Gives the time of CLOCK_MONOTONIC, at less than half of what clock_gettime costs. CLOCK_MONOTONIC is read once a
// millisecond, and the processor's counter (the TSC of x86-64, cntvct_el0 of aarch64) measures the time since the last
// reading.
//
// Each reading corrects the time that comes from the counter, so errors do not last. If a virtual machine moves, if two
// processors' counters differ or if a laptop sleeps, the next reading sets the time right, and the counter's pace is
// measured again within a tenth of a second. Until then, times are wrong by some milliseconds; normally they are wrong
// by some nanoseconds. The times of one clock never go back. While the counter cannot be used or its pace is not known,
// each time comes from clock_gettime.
//
// A clock belongs to one thread. All threads of the process share the pace.
#pragma once

#include <time.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace opspan::capture {

inline int64_t now_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

// The time sources of a clock. Tests pass other sources.
struct Machine {
  static uint64_t ticks() {
#if defined(__x86_64__)
    return __rdtsc();
#elif defined(__aarch64__)
    uint64_t ticks;
    // There is no isb before this instruction, and no lfence before rdtsc: each would cost what the counter saves.
    asm volatile("mrs %0, cntvct_el0" : "=r"(ticks));
    return ticks;
#else
    return 0;
#endif
  }
  static int64_t ns() { return now_ns(); }
};

// Returns whether a counter of this frequency may time single ranges: a tick is at most 4 ns. The counter of aarch64
// runs at 1 GHz since Armv8.6, and often at 25 to 100 MHz before. Linux corrects errors of some of the slow counters:
// it catches each reading, or reads twice.
constexpr bool is_fine(uint64_t ticks_per_second) { return ticks_per_second >= 250'000'000; }

// Checks whether this machine's counter runs at one pace on all processors. Call it before clocks are used. Only the
// first call makes the check.
void check_counter();

// The length of a tick of the counter. `scale` is in units of 2^-32 ns; 0 means that the length is not known (yet).
struct Pace {
  std::atomic<bool> is_fit{false};
  std::atomic<uint64_t> scale{0};
};
extern constinit Pace g_pace;

template <class Source>
class BasicClock {
 public:
  explicit BasicClock(Pace& pace = g_pace) : pace_(&pace) {}

  int64_t now() {
    uint64_t elapsed = Source::ticks() - ticks_;
    int64_t ns = elapsed < span_ ? ns_ + static_cast<int64_t>(elapsed * scale_ >> 32) : synchronize();
    return last_ = std::max(last_, ns);
  }

 private:
  static constexpr int64_t kSpan = 1'000'000;          // ns between two readings of the clock
  static constexpr int64_t kFirstWindow = 10'000'000;  // duration (ns) of the first measurement of the pace
  static constexpr int64_t kNextWindow = 100'000'000;  // duration (ns) of each later measurement

  struct Reading {
    uint64_t ticks = 0;
    int64_t ns = 0;
  };

  // Reads the counter and the clock three times, and returns the pair of readings that took the least time. In the
  // other pairs, the thread may have been interrupted between the two readings.
  static Reading read_both() {
    Reading best;
    uint64_t least = ~uint64_t{0};
    for (int i = 0; i < 3; ++i) {
      uint64_t before = Source::ticks();
      int64_t ns = Source::ns();
      uint64_t took = Source::ticks() - before;
      if (took < least) best = {before + took / 2, ns}, least = took;
    }
    return best;
  }

  static bool nearly_equal(uint64_t a, uint64_t b) { return a && b && (a > b ? a - b : b - a) <= b >> 10; }

  [[gnu::cold, gnu::noinline]] int64_t synchronize();
  void measure(const Reading& now);

  uint64_t ticks_ = 0;  // the counter when the clock was last read
  uint64_t span_ = 0;   // number of ticks for which only the counter is read; 0: each time comes from clock_gettime
  uint64_t scale_ = 0;
  int64_t ns_ = 0;
  int64_t last_ = 0;
  Reading from_;                // the reading at which the current measurement of the pace began
  uint64_t last_measured_ = 0;  // the pace that this thread measured last
  Pace* const pace_;
};

template <class Source>
int64_t BasicClock<Source>::synchronize() {
  span_ = 0;
  int64_t ns = Source::ns();
  bool is_known = pace_->scale.load(std::memory_order_relaxed) != 0;
  bool is_waiting = !is_known && from_.ns && ns - from_.ns < kFirstWindow;
  if (is_waiting || !pace_->is_fit.load(std::memory_order_relaxed)) return ns;
  Reading now = read_both();
  measure(now);
  ns_ = std::max(last_, now.ns);
  int64_t ahead = ns_ - now.ns;
  uint64_t scale = pace_->scale.load(std::memory_order_relaxed);
  if (scale && ahead < kSpan / 2) {
    ticks_ = now.ticks;
    span_ = (static_cast<uint64_t>(kSpan) << 32) / scale;
    // If the last time that was returned is ahead of the clock, times advance more slowly until the clock has caught
    // up.
    scale_ = scale - scale / kSpan * static_cast<uint64_t>(ahead);
  }
  return ns_;
}

// A pace is accepted when two consecutive measurements of a thread differ by at most a thousandth, because a
// disturbance of the counter affects only one of them. The accepted pace is dropped as soon as a measurement of any
// thread differs from it by more than that.
template <class Source>
void BasicClock<Source>::measure(const Reading& now) {
  uint64_t known = pace_->scale.load(std::memory_order_relaxed);
  int64_t ns = now.ns - from_.ns;
  if (from_.ns && ns < (known ? kNextWindow : kFirstWindow)) return;
  auto ticks = static_cast<int64_t>(now.ticks - from_.ticks);
  uint64_t measured = 0;
  if (from_.ns && ticks > 0) {
    __extension__ using Wide = unsigned __int128;
    Wide scale = (static_cast<Wide>(ns) << 32) / static_cast<uint64_t>(ticks);
    if (scale >> 26 && !(scale >> 38)) measured = static_cast<uint64_t>(scale);  // accepts only 16 MHz to 64 GHz
  }
  if (from_.ns)
    pace_->scale.store(nearly_equal(measured, known ? known : last_measured_) ? measured : 0,
                       std::memory_order_relaxed);
  last_measured_ = measured;
  from_ = now;
}

using Clock = BasicClock<Machine>;

}  // namespace opspan::capture
