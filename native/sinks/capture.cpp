// The capture sink: ranges into a capture file of our own, with no tool at all.
#include <errno.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>

#include "capture/writer.h"
#include "sinks/interned.h"
#include "sinks/session.h"
#include "sinks/sink.h"
#include "sinks/text.h"
#include "sinks/threads.h"

namespace opspan {
namespace {

using capture::Event;
using capture::Source;
using capture::Unit;

Session& session() { return g_sessions[OPSPAN_CAPTURE]; }

// Sizes come as numbers, again and again the same: their text is written once, and its id looked up once a file.
constexpr uint32_t kMaxTexts = 65536;
Interned g_inputs, g_values, g_stacks;

// Sizes, types and strides change together, so one look-up finds all three.
struct Inputs {
  capture::Constant sizes, types, strides;
};

// Frame::where
enum : uint8_t { kNothing = 0, kWritten = 1 };

// In place on its own thread; `late` may be called on another, and writes a unit that names this one.
void finish(const Frame& frame) {
  if (frame.where == kWritten) capture::finish(frame.place, capture::now_ns());
}

void close(Frame& frame) {
  Ended ended = frame.ended.load(std::memory_order_relaxed);
  if (ended == Ended::kNo) finish(frame);
  if (ended == Ended::kElsewhere && frame.where == kWritten) capture::release(frame.place);
}

void late(Frame& frame) { finish(frame); }

std::string sizes_of(const int64_t* words, size_t count) {
  std::string text;
  if (count) text::append_sizes(text, words, count);
  return text;
}

std::string types_of(const int64_t* words, size_t count) {
  std::string text;
  if (count) text::append_types(text, words, count);
  return text;
}

void tell_inputs(capture::Log& log, const opspan_op& op, Event& event) {
  const int64_t* types = op.sizes + op.sizes_count;
  const int64_t* strides = types + op.types_count;
  auto build = [](std::string&) {};
  auto make = [&] {
    return new Inputs{capture::Constant(sizes_of(op.sizes, op.sizes_count)),
                      capture::Constant(types_of(types, op.types_count)),
                      capture::Constant(sizes_of(strides, op.strides_count))};
  };
  auto give = [&](const char*) -> void* { return make(); };
  auto drop = [](void* inputs) { delete static_cast<Inputs*>(inputs); };
  Key key({}, uint64_t{op.types_count} << 32 | op.strides_count, op.sizes,
          size_t{op.sizes_count} + op.types_count + op.strides_count);
  auto* entry = g_inputs.get(key, kMaxTexts, build, give, drop);
  std::unique_ptr<Inputs> once(entry ? nullptr : make());
  Inputs& inputs = entry ? *static_cast<Inputs*>(entry->handle) : *once;
  event.range.sizes = log.intern(inputs.sizes);
  if (!op.types_count) return;
  event.flags |= capture::kHasInputs;
  event.range.types = log.intern(inputs.types);
  event.range.strides = log.intern(inputs.strides);
}

// The text that stands for these words.
template <class Build>
uint32_t interned(Interned& table, capture::Log& log, Thread& here, const int64_t* words, size_t count, Build&& build) {
  auto give = [](const char* text) -> void* { return new capture::Constant(text); };
  auto drop = [](void* constant) { delete static_cast<capture::Constant*>(constant); };
  if (auto* entry = table.get(Key({}, 0, words, count), kMaxTexts, build, give, drop)) {
    return log.intern(*static_cast<capture::Constant*>(entry->handle));
  }
  here.text.clear();
  build(here.text);
  return log.intern(here.text);
}

uint32_t values_id(capture::Log& log, Thread& here, const opspan_op& op) {
  auto build = [&](std::string& out) { text::append_values(out, op.values, op.values_count); };
  return interned(g_values, log, here, op.values, op.values_count, build);
}

uint32_t stack_id(capture::Log& log, Thread& here, const opspan_op& op) {
  auto build = [&](std::string& out) {
    out.resize(4096);
    size_t size = op.stack_text(op.stack, op.stack_count, out.data(), out.size());
    if (size > out.size()) {
      out.resize(size);
      size = std::min(size, op.stack_text(op.stack, op.stack_count, out.data(), size));
    }
    out.resize(size);
  };
  return interned(g_stacks, log, here, op.stack, op.stack_count, build);
}

void begin(const void* key, const opspan_op* op) {
  Thread& here = Thread::here();
  here.know(op->thread);
  Frames& frames = here.frames[OPSPAN_CAPTURE];
  frames.settle(close);
  Frame* frame = here.next_frame(OPSPAN_CAPTURE, key, op->op_id);
  if (!frame) return;
  if (capture::Log* log = session().form() ? capture::log() : nullptr) {
    Event event;
    event.kind = static_cast<uint8_t>(Unit::kRange);
    event.source = static_cast<uint8_t>(Source::kTorch);
    event.flags = op->sequence >= 0 ? capture::kValueInt : capture::kValueNone;
    event.name = log->intern(text::name_of(*op));
    event.range = {};
    event.range.value = op->sequence;
    event.range.id = op->op_id;
    event.range.category = op->kind;
    if (op->kind == OPSPAN_KIND_BACKWARD) {
      event.flags |= capture::kHasForward;
      event.range.forward_tid = forward_tid(here, *op);
    } else if (op->stack_count) {
      event.flags |= capture::kHasStack;
      event.range.stack = stack_id(*log, here, *op);
    }
    if (op->sizes_count) tell_inputs(*log, *op, event);
    if (op->values_count) event.range.inputs = values_id(*log, here, *op);
    event.range.start_ns = capture::now_ns();
    frame->place = log->append(event);
    frame->where = kWritten;
    count_range(here, OPSPAN_CAPTURE);
  }
  frames.open();
}

void end(const void* key, uint64_t op_id, uint64_t thread, const uintptr_t*, size_t) {
  end_range(Thread::here(), OPSPAN_CAPTURE, key, op_id, thread, close, late);
}

void memory(const opspan_memory* told) {
  capture::Log* log = session().form() ? capture::log() : nullptr;
  if (!log) return;
  Event event = {};
  event.kind = static_cast<uint8_t>(Unit::kMemory);
  event.source = static_cast<uint8_t>(Source::kTorch);
  event.flags = static_cast<uint16_t>(told->what);
  event.memory.time_ns = capture::now_ns();
  event.memory.address = told->address;
  event.memory.bytes = told->bytes;
  event.memory.total = told->total;
  event.memory.device_type = told->device_type;
  event.memory.device_index = told->device_index;
  log->append(event);
}

// --- the user's own

bool user_on() { return session().form() != 0; }

capture::Place append_user_range(Unit unit, uint64_t id, const opspan_range& range) {
  capture::Log* log = capture::log();
  if (!log) return {};
  Event event;
  event.kind = static_cast<uint8_t>(unit);
  event.source = static_cast<uint8_t>(Source::kUser);
  event.flags = range.payload_type > 0 && range.payload_type <= 3 ? static_cast<uint16_t>(range.payload_type)
                                                                  : capture::kValueNone;
  if (range.color) event.flags |= capture::kHasColor;
  event.name = log->intern(text::name_of(range));
  event.range = {};
  event.range.value = range.payload.i;
  event.range.id = id;
  event.range.category = range.kind;
  event.range.color = range.color;
  event.range.start_ns = capture::now_ns();
  capture::Place place = log->append(event);
  if (range.category) log->attribute_text(place, log->intern("category"), log->intern(range.category));
  if (range.detail) log->attribute_text(place, log->intern(text::detail_key(range)), log->intern(range.detail));
  return place;
}

void user_begin(Thread&, Frame& frame, const opspan_range& range) {
  frame.place = append_user_range(Unit::kRange, 0, range);
  frame.where = kWritten;
}

void user_mark(Thread&, const opspan_range& range) { append_user_range(Unit::kMark, 0, range); }

// What was begun is known by the file it went to: no other file is told of its end.
uint64_t user_begin_async(Thread&, uint64_t id, const opspan_range& range) {
  append_user_range(Unit::kAsync, id, range);
  return capture::session();
}

void user_end_async(uint64_t id, uint64_t session) {
  capture::Log* log = capture::session() == session ? capture::log() : nullptr;
  if (!log) return;
  Event event = {};
  event.kind = static_cast<uint8_t>(Unit::kEnd);
  event.source = static_cast<uint8_t>(Source::kUser);
  event.end.time_ns = capture::now_ns();
  event.end.id = id;
  log->append(event);
}

// --- sessions

bool is_listening() { return true; }

int start(const opspan_settings& settings, char* said, size_t said_size) {
  // Not under the session lock: the writer has a lock of its own, which a fork takes first.
  if (!session().change(Session::kOff)) {
    return fail(EBUSY, "a capture is on already: stop it first", said, said_size);
  }
  capture::stop();  // left over in a fork, where another thread of the parent's had just begun it
  std::string file, sentence;
  errno = 0;
  if (!capture::start(settings.folder, capture::Producer::kRecord, &file, &sentence)) {
    int number = errno ? errno : EIO;
    session().changed(Session::kOff);
    return fail(number, sentence.c_str(), said, said_size);
  }
  if (!session().start(OPSPAN_FORM_SCHEMA, 0)) {
    capture::stop();
    session().changed(Session::kOff);
    return fail(ENOMEM, kNoMemory, said, said_size);
  }
  if (said && said_size) std::snprintf(said, said_size, "%s", file.c_str());
  session().changed(Session::kOn);
  return OPSPAN_FORM_SCHEMA;
}

}  // namespace

const Sink kCapture = {"capture", {begin, end, memory}, is_listening, start, capture::stop, true};
const UserRangeSink kCaptureUserRanges = {user_on,   user_begin,       close,         late,
                                          user_mark, user_begin_async, user_end_async};

}  // namespace opspan
