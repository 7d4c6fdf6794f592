// ITT's calls for metadata and relations of tasks, for names of threads, and for pausing the collection.
#include <stdarg.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>

#include "collectors/itt_calls.h"

namespace opspan::collectors {
namespace {

using capture::AttributeType;
using capture::Constant;
using capture::Event;
using capture::Log;
using capture::Place;
using capture::Source;
using capture::Unit;

// The owner of metadata: a task of this thread, or any other object that has an ITT id.
struct Owner {
  Place place;
  bool by_id = false;
};

// Finds the owner, which mostly is an open task of this thread. The id may also belong to an overlapped task, a marker,
// a task of another thread or an ended task. Then this function writes a kIds unit for the id.
bool find_owner(Log& log, const itt::Id& id, Owner* owner) {
  itt::Id unused{};
  if (!id) return current_task(log, false, &owner->place, &unused);
  if (task_by_id(id, &owner->place)) return true;
  Event event = event_of(Unit::kIds, Source::kItt);
  event.ids.owner = capture::kNoOwner;
  uint64_t words[3] = {id.d1, id.d2, id.d3};
  memcpy(event.ids.id, words, sizeof(words));
  owner->place = log.append(event);
  owner->by_id = true;
  return true;
}

// Finds the owner by ITT's scope. Any scope other than a task covers at least the whole thread, so the thread is the
// owner.
bool find_owner(Log& log, int scope, Owner* owner) {
  itt::Id unused{};
  if (scope == itt::kScopeTask && current_task(log, false, &owner->place, &unused)) return true;
  owner->place.number = capture::kNoOwner;
  return true;
}

void write(Log& log, const Owner& owner, NamePtr key, AttributeType type, const void* values, size_t count) {
  uint32_t name = intern(log, text_of(key));
  log.attribute(owner.place.number, name, type, values, count, owner.by_id ? capture::kOwnerById : uint16_t{0});
}

// Writes the numbers of an array, each widened to 64 bits.
template <typename From, typename To>
void write_widened(Log& log, const Owner& owner, NamePtr key, AttributeType type, size_t count, const void* data) {
  std::vector<To> wide(count);
  for (size_t i = 0; i < count; ++i) {
    From value;
    memcpy(&value, static_cast<const char*>(data) + i * sizeof(From), sizeof(From));
    wide[i] = static_cast<To>(value);
  }
  write(log, owner, key, type, wide.data(), count);
}

void add(Log& log, const Owner& owner, NamePtr key, int type, size_t count, const void* data) {
  switch (type) {
    case itt::kU64:
      return write(log, owner, key, AttributeType::kUint, data, count);
    case itt::kS64:
      return write(log, owner, key, AttributeType::kInt, data, count);
    case itt::kDouble:
      return write(log, owner, key, AttributeType::kDouble, data, count);
    case itt::kU32:
      return write_widened<uint32_t, uint64_t>(log, owner, key, AttributeType::kUint, count, data);
    case itt::kU16:
      return write_widened<uint16_t, uint64_t>(log, owner, key, AttributeType::kUint, count, data);
    case itt::kS32:
      return write_widened<int32_t, int64_t>(log, owner, key, AttributeType::kInt, count, data);
    case itt::kS16:
      return write_widened<int16_t, int64_t>(log, owner, key, AttributeType::kInt, count, data);
    case itt::kFloat:
      return write_widened<float, double>(log, owner, key, AttributeType::kDouble, count, data);
    default:
      return write(log, owner, key, AttributeType::kBytes, data, count);
  }
}

void add_text(Log& log, const Owner& owner, NamePtr key, std::string_view text) {
  uint64_t id = log.intern(text);
  write(log, owner, key, AttributeType::kText, &id, 1);
}

// Returns the text as a view. A length above kMostBytes (some clients pass SIZE_MAX) means that the text ends at its
// NUL.
std::string_view text_of(const char* data, size_t length) {
  return {data, length > kMostBytes ? strnlen(data, kMostBytes) : length};
}

// Returns whether an array can have this length. If it cannot, counts the array as lost.
bool is_sane(Log& log, size_t count) {
  bool fits = count <= kMostBytes / sizeof(uint64_t);
  if (!fits) log.count_lost();
  return fits;
}

// Returns whether a printf format contains %n, with any flags or width in it. %n writes to memory, at an address that
// is passed as an argument.
bool writes(const char* format) {
  while ((format = strchr(format, '%'))) {
    format += 1 + strspn(format + 1, "0123456789$ #+-'I.*hlLjztq");
    if (*format == 'n') return true;
    if (*format) ++format;
  }
  return false;
}

// Adds a text that is made from the client's printf format and arguments. Ignores formats that would write to memory.
void add_formatted(Log& log, const Owner& owner, NamePtr format, va_list arguments) {
  if (!format->strA || writes(format->strA)) return;
  char text[1024];
  int length = vsnprintf(text, sizeof(text), format->strA, arguments);
  if (length >= 0) add_text(log, owner, format, {text, std::min(static_cast<size_t>(length), sizeof(text) - 1)});
}

void relate(itt::Id head, int relation, itt::Id tail, int64_t at_ns) {
  Log* log = capture::log();
  if (!log) return;
  Event event = event_of(Unit::kRelation, Source::kItt);
  event.flags = static_cast<uint16_t>(relation);
  event.relation.time_ns = at_ns;
  uint64_t words[6] = {head.d1, head.d2, head.d3, tail.d1, tail.d2, tail.d3};
  memcpy(event.relation.head, words, 24);
  memcpy(event.relation.tail, words + 3, 24);
  log->append(event);
}

void relate_current(int relation, itt::Id tail, int64_t at_ns) {
  Log* log = capture::log();
  Place place;
  itt::Id head{};
  if (log && current_task(*log, true, &place, &head)) relate(head, relation, tail, at_ns);
}

void collect(bool on) {
  Log* log = capture::log();
  if (!log) return;
  Event event = event_of(Unit::kState, Source::kItt);
  event.flags = on;
  event.state.time_ns = now();
  log->append(event);
}

}  // namespace

void metadata_add(DomainPtr, itt::Id id, NamePtr key, int type, size_t count, void* data) {
  Log* log = capture::log();
  if (!log || !count || !data || !is_sane(*log, count)) return;
  Owner owner;
  if (find_owner(*log, id, &owner)) add(*log, owner, key, type, count, data);
}

void metadata_str_add(DomainPtr, itt::Id id, NamePtr key, const char* data, size_t length) {
  Log* log = capture::log();
  if (!log || !data) return;
  Owner owner;
  if (find_owner(*log, id, &owner)) add_text(*log, owner, key, text_of(data, length));
}

void metadata_add_with_scope(DomainPtr, int scope, NamePtr key, int type, size_t count, void* data) {
  Log* log = capture::log();
  Owner owner;
  if (log && count && data && is_sane(*log, count) && find_owner(*log, scope, &owner))
    add(*log, owner, key, type, count, data);
}

void metadata_str_add_with_scope(DomainPtr, int scope, NamePtr key, const char* data, size_t length) {
  Log* log = capture::log();
  Owner owner;
  if (log && data && find_owner(*log, scope, &owner)) add_text(*log, owner, key, text_of(data, length));
}

void formatted_metadata_add(DomainPtr, NamePtr format, ...) {
  Log* log = capture::log();
  Owner owner;
  if (!log || !format || !find_owner(*log, itt::Id{}, &owner)) return;
  va_list arguments;
  va_start(arguments, format);
  add_formatted(*log, owner, format, arguments);
  va_end(arguments);
}

void formatted_metadata_add_overlapped(DomainPtr, itt::Id id, NamePtr format, ...) {
  Log* log = capture::log();
  Owner owner;
  if (!log || !format || !find_owner(*log, id, &owner)) return;
  va_list arguments;
  va_start(arguments, format);
  add_formatted(*log, owner, format, arguments);
  va_end(arguments);
}

void relation_add(DomainPtr, itt::Id head, int relation, itt::Id tail) { relate(head, relation, tail, now()); }

void relation_add_ex(DomainPtr, ClockPtr clock, Stamp stamp, itt::Id head, int relation, itt::Id tail) {
  relate(head, relation, tail, time_ns(clock, stamp));
}

void relation_add_to_current(DomainPtr, int relation, itt::Id tail) { relate_current(relation, tail, now()); }

void relation_add_to_current_ex(DomainPtr, ClockPtr clock, Stamp stamp, int relation, itt::Id tail) {
  relate_current(relation, tail, time_ns(clock, stamp));
}

void thread_set_name(const char* name) {
  Log* log = capture::log();
  if (!log || !name) return;
  Event event = event_of(Unit::kName, Source::kItt);
  event.name = log->intern(std::string_view(name));
  event.name_of.what = 1;
  event.name_of.number = log->tid();
  log->append(event);
}

// Recording goes on while collection is paused: a reader decides what a pause means.
void pause() { collect(false); }
void resume() { collect(true); }
void pause_scoped(int) { collect(false); }
void resume_scoped(int) { collect(true); }

}  // namespace opspan::collectors
