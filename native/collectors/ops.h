// Ops that opspan's own sinks pass to this library directly, without NVTX or ITT in between (direct.h).
#pragma once

#include "capture/label.h"
#include "collectors/collector.h"
#include "collectors/direct.h"

namespace opspan::collectors {

extern const direct::Calls kNvtxOps;  // defined in nvtx_events.cpp
extern const direct::Calls kIttOps;   // defined in itt_tasks.cpp

inline const void* keep(const char* text) { return constant(text); }

inline capture::Constant* own_domain() {
  static capture::Constant* const domain = constant(label::kDomain);
  return domain;
}

// Returns a thread's state. `here` is the pointer that Calls::thread returned.
template <typename Thread>
Thread& thread_at(void* here) {
  return thread_state(*static_cast<Thread**>(here));
}

// Returns the event of an op, with the fields that both protocols, NVTX and ITT, fill in.
inline capture::Event op_event(capture::Log& log, const direct::Op& op, capture::Source source) {
  capture::Event event = event_of(capture::Unit::kRange, source);
  event.flags = capture::kHasLabel;
  event.name = log.intern(capture::OpName(op.name, op.kind));
  event.range.domain = log.intern(*own_domain());
  event.range.id = op.id;
  if (op.sequence >= 0) {
    event.flags |= capture::kValueInt;
    event.range.value = op.sequence;
  }
  if (op.forward_tid) {
    event.flags |= capture::kHasForward;
    event.range.forward_tid = op.forward_tid;
  }
  if (op.sizes_handle) {
    event.range.sizes = log.intern(*static_cast<capture::Constant*>(const_cast<void*>(op.sizes_handle)));
  } else if (op.sizes_length) {
    event.range.sizes = log.intern(std::string_view(op.sizes, op.sizes_length));
  }
  return event;
}

}  // namespace opspan::collectors
