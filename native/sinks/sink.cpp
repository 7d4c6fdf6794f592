// The list of sinks, and the functions of sinks.h that are the same for every sink.
#include "sinks/sink.h"

#include <errno.h>

#include "sinks/session.h"

namespace opspan {

#define OPSPAN_ADDRESS(NAME, Name) &k##Name,
const Sink* const kSinks[OPSPAN_SINK_COUNT] = {OPSPAN_SINKS(OPSPAN_ADDRESS)};
#undef OPSPAN_ADDRESS

namespace {
const Sink* sink_at(int sink) { return sink >= 0 && sink < OPSPAN_SINK_COUNT ? kSinks[sink] : nullptr; }
}  // namespace

}  // namespace opspan

using namespace opspan;

int opspan_sinks_abi(void) { return OPSPAN_SINKS_ABI; }

const opspan_sink* opspan_sink_of(int sink) {
  const Sink* entry = sink_at(sink);
  return entry ? &entry->ops : nullptr;
}

const char* opspan_sink_name(int sink) {
  const Sink* entry = sink_at(sink);
  return entry ? entry->name : nullptr;
}

int opspan_listening(int sink) {
  const Sink* entry = sink_at(sink);
  return entry && entry->listening();
}

int opspan_start(int sink, const opspan_settings* settings, char* message, size_t message_size) {
  const Sink* entry = sink_at(sink);
  if (!entry || !settings) return fail(EINVAL, "there is no such sink", message, message_size);
  return entry->start(*settings, message, message_size);
}

void opspan_stop(int sink, opspan_stats* stats) {
  if (stats) *stats = {};
  if (!sink_at(sink)) return;
  opspan_labelling(sink, 0);
  stop_session(sink, stats);
}
