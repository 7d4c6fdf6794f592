#include "collectors/nvtx_events.h"

#include <string.h>

#include <algorithm>
#include <bit>

#include "collectors/ops.h"

namespace opspan::collectors {
namespace {

using capture::Event;
using capture::Log;
using capture::Place;
using capture::Source;
using capture::Unit;

struct Frame {
  Place place;
};

struct Thread {
  capture::Log* const* logs = capture::t_logs;
  std::vector<Stack<Frame>> stacks;  // one stack for each domain; the index is Domain::index
  Stack<Frame> ops;                  // ops that opspan's own sinks pass directly
  uint64_t last_id = 0;

  Stack<Frame>& stack(const Domain& domain) {
    if (domain.index >= stacks.size()) stacks.resize(domain.index + 1);
    return stacks[domain.index];
  }
  // Returns an id that is unique in the process. Each thread has its own block of ids.
  uint64_t next_id() {
    static std::atomic<uint64_t> threads{0};
    if (!last_id) last_id = ++threads << 40;
    return ++last_id;
  }
};

// Returns the attributes. A client with another NVTX version may pass a longer or shorter structure. A shorter one is
// copied into `copy`.
const nvtxEventAttributes_t& read(const nvtxEventAttributes_t& attributes, nvtxEventAttributes_t* copy) {
  if (attributes.size >= sizeof(attributes)) [[likely]]
    return attributes;
  *copy = {};
  memcpy(copy, &attributes, attributes.size);
  return *copy;
}

uint32_t message(Log& log, const nvtxEventAttributes_t& from) {
  switch (from.messageType) {
    case NVTX_MESSAGE_TYPE_REGISTERED: {
      capture::Constant* text = g_constants.find(from.message.registered);
      return text ? log.intern(*text) : 0;
    }
    case NVTX_MESSAGE_TYPE_ASCII:
      return from.message.ascii ? log.intern(std::string_view(from.message.ascii)) : 0;
    case NVTX_MESSAGE_TYPE_UNICODE:
      return from.message.unicode ? log.intern(to_utf8(from.message.unicode)) : 0;
    default:
      return 0;
  }
}

void take_payload(const nvtxEventAttributes_t& from, Event* event) {
  auto set = [event](uint16_t flag, int64_t value) {
    event->flags |= flag;
    event->range.value = value;
  };
  switch (from.payloadType) {
    case NVTX_PAYLOAD_TYPE_UNSIGNED_INT64:
      return set(capture::kValueUint, from.payload.llValue);
    case NVTX_PAYLOAD_TYPE_INT64:
      return set(capture::kValueInt, from.payload.llValue);
    case NVTX_PAYLOAD_TYPE_DOUBLE:
      return set(capture::kValueDouble, from.payload.llValue);
    case NVTX_PAYLOAD_TYPE_UNSIGNED_INT32:
      return set(capture::kValueUint, from.payload.uiValue);
    case NVTX_PAYLOAD_TYPE_INT32:
      return set(capture::kValueInt, from.payload.iValue);
    case NVTX_PAYLOAD_TYPE_FLOAT:
      return set(capture::kValueDouble, std::bit_cast<int64_t>(double{from.payload.fValue}));
    default:
      return;
  }
}

// Writes the event. Its time is taken as late as possible, so that a range does not include our own work.
Place write(Unit kind, Domain& domain, const EventInput& input, uint64_t id, Log* const* logs = capture::t_logs) {
  Log* log = capture::log(0, logs);
  if (!log) return {};
  domain.describe(*log);
  Event event = event_of(kind, Source::kNvtx);
  event.range.domain = domain.name(*log);
  event.range.id = id;
  Payloads payloads(domain, input.payloads, input.payload_count);
  if (input.attributes) {
    nvtxEventAttributes_t copy;
    const nvtxEventAttributes_t& attributes = read(*input.attributes, &copy);
    event.name = message(*log, attributes);
    event.range.category = attributes.category;
    if (attributes.colorType == NVTX_COLOR_ARGB) {
      event.flags |= capture::kHasColor;
      event.range.color = attributes.color;
    }
    take_payload(attributes, &event);
    if (attributes.payloadType == NVTX_PAYLOAD_TYPE_EXT) {
      auto* first = reinterpret_cast<const nvtxPayloadData_t*>(attributes.payload.ullValue);
      payloads = Payloads(domain, first, static_cast<uint32_t>(attributes.reserved0));
    }
  } else if (input.text.data()) {
    event.name = log->intern(input.text);
  }
  payloads.apply(*log, &event);
  event.range.start_ns = log->now();
  Place place = log->append(event);
  payloads.write(*log, place);
  return place;
}

Place write_op(const direct::Op& op, Thread& here) {
  Log* log = capture::log(0, here.logs);
  if (!log) return {};
  Event event = op_event(*log, op, Source::kNvtx);
  event.flags |= capture::kHasColor;
  event.range.category = op.kind;
  event.range.color = label::color_of(op.kind);
  event.range.start_ns = log->now();
  return log->append(event);
}

void begin_op(void* here, const direct::Op& op) {
  Thread& thread = thread_at<Thread>(here);
  thread.ops.push([&](Frame& frame) { frame.place = write_op(op, thread); });
}

void end_op(void* here) {
  Thread& thread = thread_at<Thread>(here);
  int64_t end_ns = now(thread.logs);
  Frame frame;
  if (thread.ops.pop(&frame, [](const Frame&) { return true; })) capture::end_range(frame.place, end_ns, thread.logs);
}

}  // namespace

const direct::Calls kNvtxOps = {[]() -> void* { return &t_state<Thread>; }, begin_op, end_op, keep};

int push(Domain& domain, const EventInput& input) {
  Thread& here = thread_state<Thread>();
  return here.stack(domain).push([&](Frame& frame) { frame.place = write(Unit::kRange, domain, input, 0, here.logs); });
}

int pop(Domain& domain, const EventInput& input) {
  Thread& here = thread_state<Thread>();
  int64_t end_ns = now(here.logs);
  Stack<Frame>& stack = here.stack(domain);
  Frame frame;
  if (!stack.pop(&frame, [](const Frame&) { return true; })) return -1;
  if (input.payload_count) {
    if (Log* log = capture::log()) Payloads(domain, input.payloads, input.payload_count).write(*log, frame.place);
  }
  capture::end_range(frame.place, end_ns, here.logs);
  return stack.depth();
}

uint64_t start_range(Domain& domain, const EventInput& input) {
  uint64_t id = thread_state<Thread>().next_id();
  write(Unit::kAsync, domain, input, id);
  return id;
}

void end_range(Domain& domain, uint64_t id, const EventInput& input) {
  int64_t end_ns = now();
  Log* log = capture::log();
  if (!log) return;
  Event event = event_of(Unit::kEnd, Source::kNvtx);
  event.end.time_ns = end_ns;
  event.end.id = id;
  Place place = log->append(event);
  Payloads(domain, input.payloads, input.payload_count).write(*log, place);
}

void mark(Domain& domain, const EventInput& input) { write(Unit::kMark, domain, input, 0); }

void name_thread(uint32_t tid, std::string_view text) {
  Log* log = text.data() ? capture::log() : nullptr;
  if (!log) return;
  Event event = event_of(Unit::kName, Source::kNvtx);
  event.name = log->intern(text);
  event.name_of.what = 1;
  event.name_of.number = tid;
  log->append(event);
}

}  // namespace opspan::collectors
