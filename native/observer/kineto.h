// Tells Kineto which threads there are. Torch uses Kineto to collect events of devices.
//
// A device's tool identifies threads by their pthread_t. If Kineto has been told of a thread, it writes the thread's OS
// number instead, which our ranges have too. Torch itself tells Kineto of threads only while torch records ops.
#pragma once

#include <atomic>
#include <cstdint>

#if __has_include(<kineto/libkineto.h>) && !defined(OPSPAN_NO_KINETO)
#define OPSPAN_HAS_KINETO
#include <kineto/libkineto.h>
// The function is weak, because some builds of torch have no Kineto.
namespace libkineto {
[[gnu::weak]] LibkinetoApi& api();
}
#endif

namespace opspan {

// The number of the current session; 0 if there is none. While there is a session, threads are reported to Kineto.
inline std::atomic<uint32_t> g_kineto_session{0};
inline thread_local uint32_t t_noted_in = 0;

inline void tell_kineto(bool on) {
  static uint32_t last = 0;
  g_kineto_session.store(on ? ++last : 0, std::memory_order_relaxed);
}

inline void note_thread() {
  uint32_t session = g_kineto_session.load(std::memory_order_relaxed);
  // Checks the global first, because thread-local state costs more to look up, and mostly no session is on.
  if (session == 0) [[likely]]
    return;
  if (session == t_noted_in) return;
  t_noted_in = session;
#ifdef OPSPAN_HAS_KINETO
  if (&libkineto::api && libkineto::api().isProfilerRegistered()) {
    libkineto::api().activityProfiler().recordThreadInfo();
  }
#endif
}

}  // namespace opspan
