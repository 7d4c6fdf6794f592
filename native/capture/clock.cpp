#include "capture/clock.h"

#include <algorithm>
#include <cstdio>
#include <initializer_list>
#include <string_view>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace opspan::capture {

constinit Pace g_pace;

namespace {

// Returns whether the kernel uses the processor's counter as its own clock source, under one of these names. The kernel
// does so only if the counters of all processors agree.
[[maybe_unused]] bool kernel_uses(std::initializer_list<std::string_view> names) {
  FILE* file = std::fopen("/sys/devices/system/clocksource/clocksource0/current_clocksource", "re");
  if (!file) return false;
  char name[64];
  size_t size = std::fread(name, 1, sizeof(name), file);
  std::fclose(file);
  std::string_view source(name, size);
  source = source.substr(0, source.find('\n'));
  return std::find(names.begin(), names.end(), source) != names.end();
}

// Returns whether the processor's counter can be used. It must run at one constant rate: the TSC says so in its
// "invariant TSC" bit, and the counter of aarch64 always does.
bool is_fit() {
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kInvariant = 1 << 8;
  if (!__get_cpuid(0x80000007, &a, &b, &c, &d) || !(d & kInvariant)) return false;
  return kernel_uses({"tsc", "kvm-clock", "hyperv_clocksource_tsc_page"});
#elif defined(__aarch64__)
  uint64_t ticks_per_second;
  asm("mrs %0, cntfrq_el0" : "=r"(ticks_per_second));
  return is_fine(ticks_per_second) && kernel_uses({"arch_sys_counter"});
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
