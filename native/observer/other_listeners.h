// Tells whether other listeners than opspan get a user's own range. If so, record_function begins torch's range, too,
// and opspan's sinks ignore that range, because they get one of their own.
#pragma once

#include <ATen/record_function.h>

#include <algorithm>

#include "fast_ranges.h"

namespace opspan {

// True while record_function begins torch's range for other listeners alone.
inline thread_local bool t_is_silent = false;

inline void* call_silent(void* callable) {
  struct Mark {
    Mark() { t_is_silent = true; }
    ~Mark() { t_is_silent = false; }
  } mark;
  return PyObject_CallObject(static_cast<_object*>(callable), nullptr);
}

template <class IsOurs>
bool others_listen(IsOurs&& is_ours) {
  auto step = at::getStepCallbacksUnlessEmpty(at::RecordScope::USER_SCOPE);
  if (!step) return false;
  const auto& callbacks = step->callbacks_;
  return std::any_of(callbacks.begin(), callbacks.end(), [&](const auto& pair) { return !is_ours(pair.start_); });
}

}  // namespace opspan
