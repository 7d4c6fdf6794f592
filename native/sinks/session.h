// What an NVTX or ITT session is: the form its labels take, until it stops.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdio>

#include "sinks/threads.h"

namespace opspan {

// Starts and stops under the session lock; read by every thread.
struct Session {
  std::atomic<int> form{0};  // 0: off
  std::atomic<uint32_t> max_strings{0};
  opspan_stats base = {};  // totals at the start

  void start(int sink, int with_form, uint32_t with_max_strings) {
    base = totals(sink);
    max_strings.store(with_max_strings);
    form.store(with_form);
  }

  void stop(int sink, opspan_stats* stats) {
    if (stats) *stats = {};
    if (!form.exchange(0)) return;
    if (stats) {
      *stats = totals(sink);
      subtract(stats, base);
    }
  }
};

// How a start says no: -errno, and one sentence.
inline int fail(int error, const char* sentence, char* out, size_t size) {
  if (out && size) std::snprintf(out, size, "%s", sentence);
  return -error;
}

}  // namespace opspan
