// Sends a user's own ranges to ITT as tasks, always in the domain `opspan`.
#include <cstring>

#include "sinks/itt_shared.h"
#include "sinks/text.h"
#include "sinks/user_ranges.h"

namespace opspan {
namespace {

using namespace itt;

void describe(Domain* domain, Id id, const opspan_range& range) {
  auto text = [&](const char* name, const char* value) {
    if (value) call(g_calls.metadata_str_add, domain, id, key(name), value, std::strlen(value));
  };
  text("category", range.category);
  text(text::detail_key(range), range.detail);
  constexpr MetadataType kTypes[] = {kUnknown, kS64, kU64, kDouble};
  if (range.payload_type > 0 && range.payload_type <= 3) {
    auto payload = range.payload;
    call(g_calls.metadata_add, domain, id, key("payload"), kTypes[range.payload_type], size_t{1},
         static_cast<void*>(&payload));
  }
}

// Begins a task that has the range's name. If there are too many names already, the task is called `other`, and the
// real name becomes metadata.
template <class Begin>
void begin_named(Domain* domain, Id id, const opspan_range& range, Begin&& begin) {
  StringHandle* name = handle(range.name, kMaxNames);
  begin(name ? name : key("other"));
  if (!name) call(g_calls.metadata_str_add, domain, id, key("name"), range.name, range.name_length);
  describe(domain, id, range);
}

bool is_on() {
  Domain* domain = g_domain.load(std::memory_order_relaxed);
  return domain && domain->flags;
}

void begin(Thread& here, Frame& frame, const opspan_range& range) {
  Domain* domain = g_domain.load(std::memory_order_relaxed);
  Id id = id_of(frame);
  begin_named(domain, id, range, [&](StringHandle* name) {
    call(g_calls.task_begin, domain, id, parent_of(here.frames[OPSPAN_ITT]), name);
  });
  frame.where = kOpspanDomain;
}

void mark(Thread&, const opspan_range& range) {
  Domain* domain = g_domain.load(std::memory_order_relaxed);
  Id id = user_range_id(next_user_range_id());
  begin_named(domain, id, range, [&](StringHandle* name) {
    if (g_calls.marker.load(std::memory_order_relaxed)) {
      call(g_calls.marker, domain, id, name, kScopeTrack);
    } else {
      call(g_calls.task_begin, domain, id, kNull, name);
    }
  });
  if (!g_calls.marker.load(std::memory_order_relaxed)) call(g_calls.task_end, domain);
}

uint64_t begin_async(Thread& here, uint64_t number, const opspan_range& range) {
  Domain* domain = g_domain.load(std::memory_order_relaxed);
  Id id = user_range_id(number);
  begin_named(domain, id, range, [&](StringHandle* name) {
    call(g_calls.task_begin_overlapped, domain, id, parent_of(here.frames[OPSPAN_ITT]), name);
  });
  return 0;
}

void end_async(uint64_t number, uint64_t) {
  call(g_calls.task_end_overlapped, g_domain.load(std::memory_order_relaxed), user_range_id(number));
}

}  // namespace

const UserRangeSink kIttUserRanges = {is_on, begin, pop, end_out_of_order, mark, begin_async, end_async};

}  // namespace opspan
