// The capture sinks. They write ranges to opspan's own capture files, without any tool. Each sink is one recording and
// has a capture writer of its own, so several recordings can be on at the same time.
#include <errno.h>

#include <atomic>
#include <string>

#include "capture/writer.h"
#include "sinks/capture_texts.h"
#include "sinks/session.h"
#include "sinks/sink.h"
#include "sinks/text.h"
#include "sinks/threads.h"

namespace opspan {
namespace {

using capture::Event;
using capture::Source;
using capture::Unit;
using namespace capture_texts;

template <uint32_t kWriter>
constexpr int kSink = OPSPAN_CAPTURE + static_cast<int>(kWriter);

template <uint32_t kWriter>
Session& session() {
  return g_sessions[kSink<kWriter>];
}

template <uint32_t kWriter>
constinit Texts g_texts;

// The values of Frame::where.
enum : uint8_t { kNothing = 0, kWritten = 1 };

// Writes the end of a range. The range's own thread writes the end into the range's unit. Another thread (in
// end_out_of_order) writes a new unit that refers to the range.
void write_end(const Frame& frame, capture::Log* const* logs = capture::t_logs) {
  if (frame.where == kWritten) capture::end_range(frame.place, 0, logs);
}

void pop(Frame& frame, capture::Log* const* logs) {
  End end = frame.end.load(std::memory_order_relaxed);
  if (end == End::kNone) write_end(frame, logs);
  if (end == End::kElsewhere && frame.where == kWritten) capture::give_up_range(frame.place);
}

void pop(Frame& frame) { pop(frame, capture::t_logs); }
void end_out_of_order(Frame& frame) { write_end(frame); }

// Returns a callback that calls pop() with the logs of this thread.
auto pop_at(const Thread& here) {
  return [logs = here.logs](Frame& frame) { pop(frame, logs); };
}

template <uint32_t kWriter>
void begin(const void* key, const opspan_op* op) {
  Thread& here = Thread::here();
  here.set_number(op->thread);
  Frames& frames = here.frames[kSink<kWriter>];
  frames.pop_ended(pop_at(here));
  Frame* frame = here.next_frame(kSink<kWriter>, key, op->op_id);
  if (!frame) return;
  if (capture::Log* log = session<kWriter>().form() ? capture::log(kWriter, here.logs) : nullptr) {
    Texts& texts = g_texts<kWriter>;
    capture::BriefRange range;
    range.flags = op->sequence >= 0 ? capture::kValueInt : capture::kValueNone;
    if (op->overload_length) range.flags |= capture::kHasOverload;
    range.name = log->intern(capture::OpName(op->name, op->kind));
    range.category = op->kind;
    range.extra = 0;
    range.value = op->sequence;
    range.id = op->op_id;
    if (op->kind == OPSPAN_KIND_BACKWARD) {
      range.flags |= capture::kHasForward;
      range.extra = forward_tid(here, *op);
      if (op->python) frame->set_functions({op->python, op->instruction, functions_around(frames, *op)});
    } else if (op->python) {
      range.extra = stack_id(texts.stacks, *log, here, *op, functions_around(frames, *op), *frame);
      if (range.extra) range.flags |= capture::kHasStack;
    }
    if (op->inputs_count) {
      auto fill = [&](Event& event) {
        add_inputs(texts.inputs, *log, *op, event);
        if (op->values_count) event.range.inputs = values_id(texts.values, *log, here, *op);
      };
      frame->place = log->append(range, digest_of(*op), fill);
    } else {
      range.start_ns = log->now();
      frame->place = log->append(range);
    }
    if (op->keywords) [[unlikely]]
      log->attribute_text(frame->place, log->intern("keywords"), log->intern(op->keywords));
    frame->where = kWritten;
    count_range(here, kSink<kWriter>);
  }
  frames.push();
}

template <uint32_t kWriter>
void end(const void* key, uint64_t op_id, uint64_t thread, const uintptr_t*, size_t) {
  Thread& here = Thread::here();
  end_range(here, kSink<kWriter>, key, op_id, thread, pop_at(here), end_out_of_order);
}

template <uint32_t kWriter>
void memory(const opspan_memory* block) {
  capture::Log* log = session<kWriter>().form() ? capture::log(kWriter) : nullptr;
  if (!log) return;
  if (capture::is_host_memory(block->device_type, block->device_index, block->address)) [[likely]] {
    log->append(capture::block_of(block->what, block->address, log->now(), block->bytes, block->total));
    return;
  }
  Event event = {};
  event.kind = static_cast<uint8_t>(Unit::kMemory);
  event.source = static_cast<uint8_t>(Source::kTorch);
  event.flags = static_cast<uint16_t>(block->what);
  event.memory.time_ns = log->now();
  event.memory.address = block->address;
  event.memory.bytes = block->bytes;
  event.memory.total = block->total;
  event.memory.device_type = block->device_type;
  event.memory.device_index = block->device_index;
  log->append(event);
}

// --- a user's own ranges

void announce(uint64_t op_id) { Thread::here().announced = op_id; }

template <uint32_t kWriter>
bool user_on() {
  return session<kWriter>().form() != 0;
}

capture::Place append_user_range(uint32_t writer, Unit unit, uint64_t id, const opspan_range& range) {
  capture::Log* log = capture::log(writer);
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
  event.range.start_ns = log->now();
  capture::Place place = log->append(event);
  if (range.category) log->attribute_text(place, log->intern("category"), log->intern(range.category));
  if (range.detail) log->attribute_text(place, log->intern(text::detail_key(range)), log->intern(range.detail));
  return place;
}

template <uint32_t kWriter>
void user_begin(Thread& here, Frame& frame, const opspan_range& range) {
  frame.place = append_user_range(kWriter, Unit::kRange, here.announced, range);
  frame.where = kWritten;
}

template <uint32_t kWriter>
void user_mark(Thread&, const opspan_range& range) {
  append_user_range(kWriter, Unit::kMark, 0, range);
}

// Returns the recording in which the range begins. The end of the range is written only to that recording.
template <uint32_t kWriter>
uint64_t user_begin_async(Thread&, uint64_t id, const opspan_range& range) {
  append_user_range(kWriter, Unit::kAsync, id, range);
  return capture::recording_id(kWriter);
}

template <uint32_t kWriter>
void user_end_async(uint64_t id, uint64_t token) {
  capture::Log* log = capture::recording_id(kWriter) == token ? capture::log(kWriter) : nullptr;
  if (!log) return;
  Event event = {};
  event.kind = static_cast<uint8_t>(Unit::kEnd);
  event.source = static_cast<uint8_t>(Source::kUser);
  event.end.time_ns = log->now();
  event.end.id = id;
  log->append(event);
}

// --- sessions

bool is_listening() { return true; }

template <uint32_t kWriter>
uint64_t stop() {
  return capture::stop(kWriter);
}

template <uint32_t kWriter>
int start(const opspan_settings& settings, char* message, size_t message_size) {
  // Takes no session lock: the writer has its own lock, and a fork takes the writer's lock before the session lock.
  if (!session<kWriter>().begin_change(Session::kOff)) {
    return fail(EBUSY, "a capture is on already: stop it first", message, message_size);
  }
  // In a forked process, the writer may still have a recording that another thread of the parent was starting at the
  // fork.
  stop<kWriter>();
  std::string file, sentence;
  errno = 0;
  capture::KeepLimits limits{settings.keep_ns, settings.keep_bytes, settings.keep_steps};
  if (!capture::start(settings.folder, capture::Producer::kRecord, &file, &sentence, kWriter, limits)) {
    int number = errno ? errno : EIO;
    session<kWriter>().finish_change(Session::kOff);
    return fail(number, sentence.c_str(), message, message_size);
  }
  if (!session<kWriter>().start(OPSPAN_FORM_SCHEMA, 0)) {
    stop<kWriter>();
    session<kWriter>().finish_change(Session::kOff);
    return fail(ENOMEM, kNoMemory, message, message_size);
  }
  if (message && message_size) std::snprintf(message, message_size, "%s", file.c_str());
  session<kWriter>().finish_change(Session::kOn);
  return OPSPAN_FORM_SCHEMA;
}

template <uint32_t kWriter>
constexpr Sink sink(const char* name) {
  constexpr opspan_sink ops = {begin<kWriter>, end<kWriter>, memory<kWriter>, announce};
  return {name, ops, is_listening, start<kWriter>, stop<kWriter>, true};
}

template <uint32_t kWriter>
constexpr UserRangeSink user_ranges() {
  return {user_on<kWriter>,          user_begin<kWriter>,    pop, end_out_of_order, user_mark<kWriter>,
          user_begin_async<kWriter>, user_end_async<kWriter>};
}

}  // namespace

static_assert(kSink<capture::kWriters - 1> == OPSPAN_CAPTURE_4);
const Sink kCapture = sink<0>("capture");
const Sink kCapture2 = sink<1>("capture 2");
const Sink kCapture3 = sink<2>("capture 3");
const Sink kCapture4 = sink<3>("capture 4");
const UserRangeSink kCaptureUserRanges = user_ranges<0>();
const UserRangeSink kCapture2UserRanges = user_ranges<1>();
const UserRangeSink kCapture3UserRanges = user_ranges<2>();
const UserRangeSink kCapture4UserRanges = user_ranges<3>();

}  // namespace opspan
