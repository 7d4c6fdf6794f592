// The capture's clock. `clocks real SECONDS` holds it against CLOCK_MONOTONIC on two threads, `clocks counter SECONDS`
// even if the counter is not fit; `clocks made N` lets N machines of our own making do to it what machines do to
// counters. Prints what test_clock.py reads; 1: it was wrong.
#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string_view>
#include <thread>
#include <vector>

#include "capture/clock.h"

using namespace opspan::capture;

namespace {

static_assert(is_fine(1'000'000'000) && is_fine(250'000'000));
static_assert(!is_fine(249'000'000) && !is_fine(25'000'000) && !is_fine(0));

// --- the real one

struct Counted {
  static inline thread_local long looks = 0;
  static uint64_t ticks() { return Machine::ticks(); }
  static int64_t ns() {
    ++looks;
    return now_ns();
  }
};

struct Found {
  long times = 0, looks = 0, wrong = 0;
  int64_t early = 0, late = 0;  // ns outside of two readings of CLOCK_MONOTONIC around it
};

Found watch(int64_t ns) {
  Found found;
  BasicClock<Counted> clock;
  int64_t last = 0;
  for (int64_t until = now_ns() + ns; last < until; ++found.times) {
    int64_t before = now_ns();
    int64_t told = clock.now();
    int64_t after = now_ns();
    if (told < last) ++found.wrong;
    last = told;
    found.early = std::max(found.early, before - told);
    found.late = std::max(found.late, told - after);
  }
  found.looks = Counted::looks;
  return found;
}

int real(double seconds, bool is_forced) {
  check_counter();
  if (is_forced) g_pace.is_fit = true;
  std::vector<Found> found(2);
  std::vector<std::thread> threads;
  for (Found& each : found) threads.emplace_back([&] { each = watch(static_cast<int64_t>(seconds * 1e9)); });
  for (std::thread& each : threads) each.join();
  long wrong = 0;
  for (const Found& each : found) {
    std::printf("fit %d times %ld looks %ld early %" PRId64 " late %" PRId64 "\n", int{g_pace.is_fit}, each.times,
                each.looks, each.early, each.late);
    wrong += each.wrong;
  }
  return wrong != 0;
}

// --- made ones

struct Made {
  static inline double ticks_now, pace, ns_now;
  static inline std::mt19937_64 random;
  static double uniform(double most) { return std::uniform_real_distribution<double>(0, most)(random); }
  static void pass(double ns) { ns_now += ns, ticks_now += ns * pace; }
  static uint64_t ticks() {
    // The thread may be interrupted before any reading, and not often for three in a row.
    pass(uniform(1) < 0.001 ? uniform(5e6) : uniform(20));
    return static_cast<uint64_t>(static_cast<int64_t>(ticks_now));
  }
  static int64_t ns() {
    pass(uniform(20));
    return static_cast<int64_t>(ns_now);
  }
  // The machine is moved, sleeps, is stopped, goes at another pace, or the thread at another processor.
  static void strike() {
    switch (random() % 5) {
      case 0:
        ticks_now += uniform(2e6) - 1e6;
        break;
      case 1:
        ticks_now += uniform(1e15);
        break;
      case 2:
        ticks_now = uniform(1e9);
        break;
      case 3:
        pace = std::clamp(pace * (0.5 + uniform(1.5)), 0.02, 6.0);
        break;
      default:
        pass(uniform(1e11));
    }
  }
};

int made(int machines) {
  double most_quiet = 0, most = 0;
  for (int seed = 0; seed < machines; ++seed) {
    Made::random.seed(static_cast<uint64_t>(seed));
    Made::ticks_now = Made::uniform(1e12), Made::ns_now = 1 + Made::uniform(1e15), Made::pace = 0.02 + Made::uniform(5);
    Pace pace;
    pace.is_fit = true;
    BasicClock<Made> clocks[2] = {BasicClock<Made>(pace), BasicClock<Made>(pace)};
    double last[2] = {}, struck = Made::ns_now;
    double until = Made::ns_now + 4e9;
    while (Made::ns_now < until) {
      // Both threads run on one processor, so a strike hits both.
      Made::pass(Made::uniform(1) < 0.001 ? Made::uniform(2e7) : Made::uniform(4e5));
      if (Made::uniform(1) < 0.0002) Made::strike(), struck = Made::ns_now, until = std::max(until, struck + 1e9);
      int which = Made::random() % 8 == 0;
      double before = Made::ns_now;
      auto told = static_cast<double>(clocks[which].now());
      double off = std::max({0.0, before - 1 - told, told - Made::ns_now - 1});
      if (told < last[which]) return std::printf("seed %d: back by %g\n", seed, last[which] - told), 1;
      last[which] = told;
      most = std::max(most, off);
      // Known anew after two windows of the slower thread.
      if (Made::ns_now - struck > 6e8) most_quiet = std::max(most_quiet, off);
    }
    if (!pace.scale) return std::printf("seed %d: the pace is not known\n", seed), 1;
  }
  std::printf("most %.0f quiet %.0f\n", most, most_quiet);
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 3) return 2;
  const std::string_view what = arguments[1];
  if (what == "made") return made(std::atoi(arguments[2]));
  return real(std::atof(arguments[2]), what == "counter");
}
