// ITT's tasks, regions, frames and user events, which have a duration, and its markers, which have none.
#include <string.h>

#include <algorithm>

#include "capture/label.h"
#include "collectors/itt_calls.h"
#include "collectors/ops.h"

namespace opspan::collectors {
namespace {

using capture::Constant;
using capture::Event;
using capture::Log;
using capture::Place;
using capture::Source;
using capture::Unit;

struct Frame {
  Place place;
  Constant* domain = nullptr;
  itt::Id id{};
};

struct Thread {
  Log* const* logs = capture::t_logs;
  Stack<Frame> tasks;
  std::vector<std::pair<int, uint64_t>> events;  // user events that began on this thread, and their ranges' ids
  uint64_t last_id = 0;

  uint64_t next_id() {
    static std::atomic<uint64_t> threads{0};
    if (!last_id) last_id = ++threads << 40;
    return ++last_id;
  }
};

// Returns a 64-bit hash of an ITT id, for kEnd units. (kIds units have the full ids.) Each kind of range passes its own
// `salt`.
uint64_t short_id(const itt::Id& id, uint64_t salt) {
  uint64_t hash = salt;
  for (uint64_t word : {uint64_t{id.d1}, uint64_t{id.d2}, uint64_t{id.d3}}) {
    hash = (hash ^ word) * 0x9e3779b97f4a7c15;
    hash ^= hash >> 29;
  }
  return hash | uint64_t{1} << 63;  // never equal to a Thread::next_id, and never 0
}

constexpr uint64_t kOverlapped = 1;
constexpr uint64_t kRegion = 2;
constexpr uint64_t kFrame = 3;

void write_ids(Log& log, const Place& place, const itt::Id& id, const itt::Id& parent) {
  uint64_t own[3] = {id.d1, id.d2, id.d3};
  uint64_t above[3] = {parent.d1, parent.d2, parent.d3};
  log.ids(place, own, above);
}

struct Range {
  Unit kind;
  Constant* domain;
  Constant* name;
  itt::Id id;
  itt::Id parent;
  uint64_t short_id = 0;
  int64_t start_ns = 0;  // 0: now
  int64_t end_ns = 0;    // 0: the range has not ended yet
  uint32_t category = 0;
};

Place write(const Range& range, Log* const* logs = capture::t_logs) {
  Log* log = capture::log(0, logs);
  if (!log) return {};
  Event event = event_of(range.kind, Source::kItt);
  event.name = intern(*log, range.name);
  event.range.domain = intern(*log, range.domain);
  event.range.id = range.short_id;
  event.range.category = range.category;
  event.range.end_ns = range.end_ns;
  event.range.start_ns = range.start_ns ? range.start_ns : log->now();
  Place place = log->append(event);
  if (range.id || range.parent) write_ids(*log, place, range.id, range.parent);
  return place;
}

void write_end(uint64_t id, int64_t end_ns) {
  Log* log = capture::log();
  if (!log) return;
  Event event = event_of(Unit::kEnd, Source::kItt);
  event.end.time_ns = end_ns;
  event.end.id = id;
  log->append(event);
}

void begin(DomainPtr domain, itt::Id id, itt::Id parent, Constant* name, int64_t start_ns) {
  Thread& here = thread_state<Thread>();
  Constant* text = text_of(domain);
  here.tasks.push([&](Frame& frame) {
    frame.place = write({Unit::kRange, text, name, id, parent, 0, start_ns}, here.logs);
    frame.domain = text;
    frame.id = id;
  });
}

void end(Thread& here, Constant* text, int64_t end_ns) {
  Frame frame;
  if (here.tasks.pop(&frame, [text](const Frame& frame) { return frame.domain == text; })) {
    capture::end_range(frame.place, end_ns, here.logs);
  }
}

void begin_async(uint64_t salt, DomainPtr domain, itt::Id id, itt::Id parent, NamePtr name, int64_t start_ns) {
  write({Unit::kAsync, text_of(domain), text_of(name), id, parent, short_id(id, salt), start_ns});
}

Place write_op(const direct::Op& op, Thread& here) {
  Log* log = capture::log(0, here.logs);
  if (!log) return {};
  Event event = op_event(*log, op, Source::kItt);
  event.range.parent = op.parent;
  event.range.start_ns = log->now();
  return log->append(event);
}

void begin_op(void* here, const direct::Op& op) {
  Thread& thread = thread_at<Thread>(here);
  thread.tasks.push([&](Frame& frame) {
    frame.place = write_op(op, thread);
    frame.domain = own_domain();
    frame.id = {op.id, label::kTag, label::kOps};
  });
}

void end_op(void* here) {
  Thread& thread = thread_at<Thread>(here);
  int64_t end_ns = now(thread.logs);
  end(thread, own_domain(), end_ns);
}

// Returns the id of a frame. If the client passes none, the frame is the current one of its domain.
itt::Id frame_id(DomainPtr domain, const itt::Id* id) {
  return id ? *id : itt::Id{reinterpret_cast<unsigned long long>(text_of(domain)), 0, ~0ULL};
}

}  // namespace

const direct::Calls kIttOps = {[]() -> void* { return &t_state<Thread>; }, begin_op, end_op, keep};

void task_begin(DomainPtr domain, itt::Id id, itt::Id parent, NamePtr name) {
  begin(domain, id, parent, text_of(name), 0);
}

void task_begin_ex(DomainPtr domain, ClockPtr clock, Stamp stamp, itt::Id id, itt::Id parent, NamePtr name) {
  begin(domain, id, parent, text_of(name), time_ns(clock, stamp));
}

void task_begin_fn(DomainPtr domain, itt::Id id, itt::Id parent, void* fn) {
  begin(domain, id, parent, text_of_function(fn), 0);
}

void task_begin_fn_ex(DomainPtr domain, ClockPtr clock, Stamp stamp, itt::Id id, itt::Id parent, void* fn) {
  begin(domain, id, parent, text_of_function(fn), time_ns(clock, stamp));
}

void task_end(DomainPtr domain) {
  Thread& here = thread_state<Thread>();
  end(here, text_of(domain), now(here.logs));
}

void task_end_ex(DomainPtr domain, ClockPtr clock, Stamp stamp) {
  end(thread_state<Thread>(), text_of(domain), time_ns(clock, stamp));
}

void task_begin_overlapped(DomainPtr domain, itt::Id id, itt::Id parent, NamePtr name) {
  begin_async(kOverlapped, domain, id, parent, name, 0);
}

void task_begin_overlapped_ex(DomainPtr domain, ClockPtr clock, Stamp stamp, itt::Id id, itt::Id parent, NamePtr name) {
  begin_async(kOverlapped, domain, id, parent, name, time_ns(clock, stamp));
}

void task_end_overlapped(DomainPtr, itt::Id id) { write_end(short_id(id, kOverlapped), now()); }

void task_end_overlapped_ex(DomainPtr, ClockPtr clock, Stamp stamp, itt::Id id) {
  write_end(short_id(id, kOverlapped), time_ns(clock, stamp));
}

void region_begin(DomainPtr domain, itt::Id id, itt::Id parent, NamePtr name) {
  begin_async(kRegion, domain, id, parent, name, 0);
}

void region_end(DomainPtr, itt::Id id) { write_end(short_id(id, kRegion), now()); }

void frame_begin_v3(DomainPtr domain, itt::Id* id) {
  Constant* text = text_of(domain);
  write({Unit::kFrame, text, text, id ? *id : itt::Id{}, {}, short_id(frame_id(domain, id), kFrame)});
}

void frame_end_v3(DomainPtr domain, itt::Id* id) {
  int64_t end_ns = now();
  write_end(short_id(frame_id(domain, id), kFrame), end_ns);
}

void frame_submit_v3(DomainPtr domain, itt::Id* id, Stamp begin, Stamp end) {
  Constant* text = text_of(domain);
  int64_t end_ns = time_ns(nullptr, end);
  write({Unit::kFrame, text, text, id ? *id : itt::Id{}, {}, 0, time_ns(nullptr, begin), end_ns});
}

void marker(DomainPtr domain, itt::Id id, NamePtr name, int scope) {
  write({Unit::kMark, text_of(domain), text_of(name), id, {}, 0, 0, 0, static_cast<uint32_t>(scope)});
}

void marker_ex(DomainPtr domain, ClockPtr clock, Stamp stamp, itt::Id id, NamePtr name, int scope) {
  int64_t start_ns = time_ns(clock, stamp);
  write({Unit::kMark, text_of(domain), text_of(name), id, {}, 0, start_ns, 0, static_cast<uint32_t>(scope)});
}

namespace {

std::vector<Constant*>& user_events() {
  static auto* names = new std::vector<Constant*>;
  return *names;
}

// The most open user events that a thread remembers. There is a limit because clients may use an event for a point in
// time; then it begins and never ends.
constexpr size_t kOpenEvents = 256;

}  // namespace

int event_create(const char* name, int length) {
  // If the client passes a length, the name need not end with NUL.
  size_t most = length >= 0 ? static_cast<size_t>(length) : kMostBytes;
  std::string_view text(name ? name : "", name ? strnlen(name, most) : 0);
  std::lock_guard lock(registry());
  auto& all = user_events();
  Constant* constant = constant_locked(text);
  auto entry = std::find(all.begin(), all.end(), constant);
  if (entry == all.end()) entry = all.insert(all.end(), constant);
  return static_cast<int>(entry - all.begin()) + 1;
}

int event_start(int event) {
  Constant* name = nullptr;
  {
    std::lock_guard lock(registry());
    if (event < 1 || static_cast<size_t>(event) > user_events().size()) return 1;
    name = user_events()[static_cast<size_t>(event) - 1];
  }
  Thread& thread = thread_state<Thread>();
  if (thread.events.size() == kOpenEvents) thread.events.erase(thread.events.begin());
  thread.events.emplace_back(event, thread.next_id());
  write({Unit::kAsync, nullptr, name, {}, {}, thread.events.back().second});
  return 0;
}

int event_end(int event) {
  int64_t end_ns = now();
  auto& open = thread_state<Thread>().events;
  auto entry = std::find_if(open.rbegin(), open.rend(), [event](auto& range) { return range.first == event; });
  if (entry == open.rend()) return 1;
  write_end(entry->second, end_ns);
  open.erase(std::next(entry).base());
  return 0;
}

bool current_task(Log& log, bool make_id, Place* place, itt::Id* id) {
  Frame* frame = thread_state<Thread>().tasks.top();
  if (!frame) return false;
  if (make_id && !frame->id) {
    frame->id = {frame->place.number, frame->place.owner, 0x6f707370616e};
    write_ids(log, frame->place, frame->id, {});
  }
  *place = frame->place;
  *id = frame->id;
  return true;
}

bool task_by_id(const itt::Id& id, Place* place) {
  auto& frames = thread_state<Thread>().tasks.frames();
  auto entry = std::find_if(frames.rbegin(), frames.rend(), [&id](const Frame& frame) { return frame.id == id; });
  if (entry == frames.rend()) return false;
  *place = entry->place;
  return true;
}

}  // namespace opspan::collectors
