#include "capture/clock.h"

#include <cstdio>
#include <string_view>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace opspan::capture {

constinit Pace g_pace;

namespace {

// Returns whether the processor's counter can be used. It must run at one constant rate (its "invariant TSC" bit), and
// the kernel must use it as its own clock source. The kernel does so only after it has compared the counters of all
// processors.
bool is_fit() {
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kInvariant = 1 << 8;
  if (!__get_cpuid(0x80000007, &a, &b, &c, &d) || !(d & kInvariant)) return false;
  FILE* file = std::fopen("/sys/devices/system/clocksource/clocksource0/current_clocksource", "re");
  if (!file) return false;
  char name[64];
  size_t size = std::fread(name, 1, sizeof(name), file);
  std::fclose(file);
  std::string_view source(name, size);
  source = source.substr(0, source.find('\n'));
  return source == "tsc" || source == "kvm-clock" || source == "hyperv_clocksource_tsc_page";
#else
  return false;
#endif
}

}  // namespace

void check_counter() {
  static const bool fit = is_fit();
  g_pace.is_fit.store(fit, std::memory_order_relaxed);
}

}  // namespace opspan::capture
