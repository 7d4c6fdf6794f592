// Sends a user's own ranges to NVTX. They go to the domain `opspan`, or have the form of torch's ranges if the session
// uses that form.
#include "sinks/nvtx_shared.h"
#include "sinks/text.h"
#include "sinks/user_ranges.h"

namespace opspan {
namespace {

using namespace nvtx;

constexpr uint32_t kFirstUserCategory = 100;
constexpr uint32_t kMaxUserCategories = 4096;
LabelTable g_categories;

uint32_t category(const opspan_range& range) {
  if (!range.category) return range.kind;
  static std::atomic<uint32_t> next{kFirstUserCategory};
  auto build = [&](std::string& out) { out += range.category; };
  auto name = [](const char* text) {
    uint32_t number = next.fetch_add(1, std::memory_order_relaxed);
    nvtxDomainNameCategoryA(domain(), number, text);
    return reinterpret_cast<void*>(uintptr_t{number});
  };
  auto* entry = g_categories.get(Key(range.category), kMaxUserCategories, build, name);
  return entry ? static_cast<uint32_t>(reinterpret_cast<uintptr_t>(entry->handle)) : range.kind;
}

nvtxEventAttributes_t event_of(Thread& here, const opspan_range& range) {
  Label label;
  label.category = category(range);
  label.color = range.color ? range.color : color_of(range.kind);
  constexpr int32_t kTypes[] = {NVTX_PAYLOAD_UNKNOWN, NVTX_PAYLOAD_TYPE_INT64, NVTX_PAYLOAD_TYPE_UNSIGNED_INT64,
                                NVTX_PAYLOAD_TYPE_DOUBLE};
  if (range.payload_type > 0 && range.payload_type <= 3) {
    label.payload_type = kTypes[range.payload_type];
    label.payload = range.payload.u;
  }
  here.text.clear();
  text::append_user_range(here.text, range);
  // The same names of modules and steps come again and again, so they are registered. Other names may contain numbers.
  if (range.kind == OPSPAN_KIND_MODULE || range.kind == OPSPAN_KIND_STEP) {
    auto build = [&](std::string& out) { out = here.text; };
    if (auto* entry = g_names.get(Key(here.text), kMaxNames, build, register_string)) label.registered = handle(entry);
  }
  label.text = here.text.c_str();
  return attributes(label);
}

bool is_plain() { return g_sessions[OPSPAN_NVTX].form() == OPSPAN_FORM_TORCH; }

// Counts ranges that lose fields: a range in torch's form has only a name.
void count_dropped(Thread& here, const opspan_range& range) {
  bool more = range.category || range.color || range.payload_type || range.detail;
  if (more && range.kind == OPSPAN_KIND_USER) here.counters[OPSPAN_NVTX].fields_dropped.add();
}

bool is_on() { return attach(); }

void begin(Thread& here, Frame& frame, const opspan_range& range) {
  if (is_plain()) {
    frame.where = kDefaultDomain;
    nvtxRangePushA(range.name);
    count_dropped(here, range);
  } else {
    frame.where = kOpspanDomain;
    nvtxEventAttributes_t event = event_of(here, range);
    nvtxDomainRangePushEx(domain(), &event);
  }
}

void mark(Thread& here, const opspan_range& range) {
  if (is_plain()) {
    nvtxMarkA(range.name);
    count_dropped(here, range);
  } else {
    nvtxEventAttributes_t event = event_of(here, range);
    nvtxDomainMarkEx(domain(), &event);
  }
}

// Async ranges are always in the domain `opspan`. The end of a range needs its domain, but an NVTX id does not tell the
// domain. And torch has no async ranges whose form could be used.
uint64_t begin_async(Thread& here, uint64_t, const opspan_range& range) {
  nvtxEventAttributes_t event = event_of(here, range);
  return nvtxDomainRangeStartEx(domain(), &event);
}

void end_async(uint64_t, uint64_t id) { nvtxDomainRangeEnd(domain(), id); }

}  // namespace

const UserRangeSink kNvtxUserRanges = {is_on, begin, pop, end_out_of_order, mark, begin_async, end_async};

}  // namespace opspan
