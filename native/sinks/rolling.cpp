// The calls for rolling captures. Other sinks do not have them.
#include "capture/writer.h"
#include "sinks/sinks.h"

namespace {
bool is_capture(int sink) { return sink >= OPSPAN_CAPTURE && sink <= OPSPAN_CAPTURE_4; }
uint32_t writer_of(int sink) { return static_cast<uint32_t>(sink - OPSPAN_CAPTURE); }
}  // namespace

void opspan_capture_step(int sink) {
  if (is_capture(sink)) opspan::capture::step(writer_of(sink));
}

void opspan_capture_hold(int sink, int on) {
  if (is_capture(sink)) opspan::capture::hold(writer_of(sink), on);
}
