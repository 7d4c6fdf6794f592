// Tells Kineto, with which torch collects on devices, which threads there are.
//
// A device's tool numbers threads by their pthread_t. For threads that it was told of, Kineto writes the number of the
// operating system instead, which our ranges have too; torch tells it of threads only while it records ops itself.
#pragma once

#include <atomic>
#include <cstdint>

#if __has_include(<kineto/libkineto.h>) && !defined(OPSPAN_NO_KINETO)
#define OPSPAN_HAS_KINETO
#include <kineto/libkineto.h>
// Weak, because there are builds of torch without Kineto.
namespace libkineto {
[[gnu::weak]] LibkinetoApi& api();
}
#endif

namespace opspan {

// The number of the session that is on; 0: none is.
inline std::atomic<uint32_t> g_kineto_session{0};
inline thread_local uint32_t t_noted_in = 0;

inline void tell_kineto(bool on) {
  static uint32_t last = 0;
  g_kineto_session.store(on ? ++last : 0, std::memory_order_relaxed);
}

inline void note_thread() {
  uint32_t session = g_kineto_session.load(std::memory_order_relaxed);
  // Looks here first: thread-local state costs more to look up, and most of the time nobody collects.
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
