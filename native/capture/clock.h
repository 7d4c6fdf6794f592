// CLOCK_MONOTONIC at less than half of its price: the processor's counter, held against the clock every millisecond.
//
// Between two looks at the clock the counter says how time goes on. So whatever the counter does (a virtual machine
// moves to another, a processor's counter differs from its neighbour's, a laptop sleeps), the next look puts it right,
// and within a tenth of a second its pace is measured anew: times are off by some milliseconds until then, by some
// nanoseconds otherwise, and those of one clock never go back. Where the counter is not fit for this, and until its
// pace is known, every time is the system's own.
//
// A clock belongs to one thread; the pace is the process'.
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

// What a clock reads. Tests have others.
struct Machine {
  static uint64_t ticks() {
#if defined(__x86_64__)
    return __rdtsc();
#else
    return 0;
#endif
  }
  static int64_t ns() { return now_ns(); }
};

// Does this machine's counter go at one pace, on all processors, as the kernel sees it? Once, before clocks are used.
void look_at_counter();

// Nanoseconds a tick, in 1 / 2^32. 0: not known (yet).
struct Pace {
  std::atomic<bool> is_fit{false};
  std::atomic<uint64_t> scale{0};
};
extern constinit Pace g_pace;

template <class Source>
class ClockOf {
 public:
  explicit ClockOf(Pace& pace = g_pace) : pace_(&pace) {}

  int64_t now() {
    uint64_t since = Source::ticks() - ticks_;
    int64_t ns = since < span_ ? ns_ + static_cast<int64_t>(since * scale_ >> 32) : look();
    return told_ = std::max(told_, ns);
  }

 private:
  static constexpr int64_t kSpan = 1'000'000;          // ns from one look at the clock to the next
  static constexpr int64_t kFirstWindow = 10'000'000;  // ns over which the pace is measured, while it is not known
  static constexpr int64_t kNextWindow = 100'000'000;  // and to measure it anew

  struct Both {
    uint64_t ticks = 0;
    int64_t ns = 0;
  };

  // Of three readings the one that took least: the thread may be interrupted between the two.
  static Both both() {
    Both best;
    uint64_t least = ~uint64_t{0};
    for (int i = 0; i < 3; ++i) {
      uint64_t before = Source::ticks();
      int64_t ns = Source::ns();
      uint64_t took = Source::ticks() - before;
      if (took < least) best = {before + took / 2, ns}, least = took;
    }
    return best;
  }

  static bool agree(uint64_t a, uint64_t b) { return a && b && (a > b ? a - b : b - a) <= b >> 10; }

  [[gnu::cold, gnu::noinline]] int64_t look();
  void measure(const Both& now);

  uint64_t ticks_ = 0;  // at the last look; span_ from then on is told by the counter
  uint64_t span_ = 0;   // 0: every time is the system's
  uint64_t scale_ = 0;
  int64_t ns_ = 0;
  int64_t told_ = 0;
  Both from_;           // where the pace is measured from
  uint64_t tried_ = 0;  // the pace of the window before, as this thread found it
  Pace* const pace_;
};

template <class Source>
int64_t ClockOf<Source>::look() {
  span_ = 0;
  int64_t ns = Source::ns();
  bool is_known = pace_->scale.load(std::memory_order_relaxed) != 0;
  bool is_waiting = !is_known && from_.ns && ns - from_.ns < kFirstWindow;
  if (is_waiting || !pace_->is_fit.load(std::memory_order_relaxed)) return ns;
  Both now = both();
  measure(now);
  ns_ = std::max(told_, now.ns);
  int64_t ahead = ns_ - now.ns;
  uint64_t scale = pace_->scale.load(std::memory_order_relaxed);
  if (scale && ahead < kSpan / 2) {
    ticks_ = now.ticks;
    span_ = (static_cast<uint64_t>(kSpan) << 32) / scale;
    // What is ahead waits until the clock has come up with it, little by little.
    scale_ = scale - scale / kSpan * static_cast<uint64_t>(ahead);
  }
  return ns_;
}

// A pace is believed when two windows of a thread, one after the other, agree on it to a thousandth: whatever happens
// to the counter is in one of them. It is doubted as soon as any thread's window does not agree.
template <class Source>
void ClockOf<Source>::measure(const Both& now) {
  uint64_t known = pace_->scale.load(std::memory_order_relaxed);
  int64_t ns = now.ns - from_.ns;
  if (from_.ns && ns < (known ? kNextWindow : kFirstWindow)) return;
  auto ticks = static_cast<int64_t>(now.ticks - from_.ticks);
  uint64_t found = 0;
  if (from_.ns && ticks > 0) {
    __extension__ using Wide = unsigned __int128;
    Wide scale = (static_cast<Wide>(ns) << 32) / static_cast<uint64_t>(ticks);
    if (scale >> 26 && !(scale >> 38)) found = static_cast<uint64_t>(scale);  // from 16 MHz to 64 GHz
  }
  if (from_.ns) pace_->scale.store(agree(found, known ? known : tried_) ? found : 0, std::memory_order_relaxed);
  tried_ = found;
  from_ = now;
}

using Clock = ClockOf<Machine>;

}  // namespace opspan::capture
