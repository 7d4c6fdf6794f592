// The functions of NVTX's extensions that are recorded: payloads and counters. The functions about clocks of other
// machines (time domains, deferred events) do nothing.
#include <string.h>

#include <bit>
#include <map>
#include <type_traits>

#include "collectors/nvtx_events.h"
// Must come after nvtx_events.h, which includes only NVTX's types.
#include <nvtx3/nvToolsExtCounters.h>

namespace opspan::collectors {
namespace {

using Handle = nvtxDomainHandle_t;
using Data = const nvtxPayloadData_t*;

struct Counter {
  Counter(capture::Constant* text, Domain* of, uint64_t sample) : name(text), domain(of), type(sample) {}
  capture::Constant* name;
  Domain* domain;
  uint64_t type;  // type of a sample when its address is passed
};

constinit Handles<Counter> g_counters;

// The counters whose id the client chose. The registry guards them.
auto& counters_by_id() {
  static auto* counters = new std::map<std::pair<Domain*, uint64_t>, Counter*>;
  return *counters;
}

// Registers a counter and returns its id. This is the counter's address, unless the client chose an id, which is then
// below 2^32.
uint64_t register_counter(Handle handle, const nvtxCounterAttr_t* attributes) {
  if (!attributes || attributes->structSize < offsetof(nvtxCounterAttr_t, description)) return 0;
  bool has_id = attributes->structSize >= sizeof(nvtxCounterAttr_t);
  uint64_t static_id = has_id ? attributes->counterId : NVTX_COUNTER_ID_NONE;
  Domain& domain = Domain::of(handle);
  std::lock_guard lock(registry());
  capture::Constant* name = constant_locked(attributes->name ? attributes->name : "");
  Counter* counter = g_counters.add(name, &domain, attributes->schemaId);
  if (!counter || !static_id) return reinterpret_cast<uint64_t>(counter);
  counters_by_id()[{&domain, static_id}] = counter;
  return static_id;
}

Counter* counter_of(Handle handle, uint64_t id) {
  if (Counter* counter = id >= NVTX_COUNTER_ID_DYNAMIC_START ? g_counters.find(id) : nullptr) return counter;
  Domain& domain = Domain::of(handle);
  std::lock_guard lock(registry());
  auto entry = counters_by_id().find({&domain, id});
  return entry == counters_by_id().end() ? nullptr : entry->second;
}

void sample(Handle handle, uint64_t id, uint16_t flag, int64_t value) {
  capture::Log* log = capture::log();
  Counter* counter = log ? counter_of(handle, id) : nullptr;
  if (!counter) return;
  capture::Event event = event_of(capture::Unit::kCounter, capture::Source::kNvtx);
  event.flags = flag;
  event.name = log->intern(*counter->name);
  event.counter.value = value;
  event.counter.domain = counter->domain->name(*log);
  event.counter.time_ns = now();
  log->append(event);
}

// Records a sample whose address is passed. Groups of counters (their type is a schema) are not recorded.
void sample_at(Handle handle, uint64_t id, const void* at, size_t bytes) {
  Counter* counter = counter_of(handle, id);
  if (!counter || !at) return;
  auto take = [&](auto value, uint16_t flag) {
    if (bytes < sizeof(value)) return;
    memcpy(&value, at, sizeof(value));
    if constexpr (std::is_floating_point_v<decltype(value)>) {
      sample(handle, id, flag, std::bit_cast<int64_t>(double{value}));
    } else {
      sample(handle, id, flag, static_cast<int64_t>(value));
    }
  };
  switch (counter->type) {
    case NVTX_PAYLOAD_ENTRY_TYPE_INT:
    case NVTX_PAYLOAD_ENTRY_TYPE_INT32:
      return take(int32_t{}, capture::kValueInt);
    case NVTX_PAYLOAD_ENTRY_TYPE_UINT:
    case NVTX_PAYLOAD_ENTRY_TYPE_UINT32:
      return take(uint32_t{}, capture::kValueUint);
    case NVTX_PAYLOAD_ENTRY_TYPE_LONG:
    case NVTX_PAYLOAD_ENTRY_TYPE_LONGLONG:
    case NVTX_PAYLOAD_ENTRY_TYPE_INT64:
      return take(int64_t{}, capture::kValueInt);
    case NVTX_PAYLOAD_ENTRY_TYPE_ULONG:
    case NVTX_PAYLOAD_ENTRY_TYPE_ULONGLONG:
    case NVTX_PAYLOAD_ENTRY_TYPE_UINT64:
    case NVTX_PAYLOAD_ENTRY_TYPE_SIZE:
      return take(uint64_t{}, capture::kValueUint);
    case NVTX_PAYLOAD_ENTRY_TYPE_FLOAT:
    case NVTX_PAYLOAD_ENTRY_TYPE_FLOAT32:
      return take(float{}, capture::kValueDouble);
    case NVTX_PAYLOAD_ENTRY_TYPE_DOUBLE:
    case NVTX_PAYLOAD_ENTRY_TYPE_FLOAT64:
      return take(double{}, capture::kValueDouble);
    default:
      return;
  }
}

uint64_t no_scope(Handle, const nvtxScopeAttr_t*) { return NVTX_SCOPE_NONE; }

// clang-format off: a table with one call on each line
template <typename Set>
void fill_payload(Set set) {
  set(NVTX3EXT_CBID_nvtxPayloadSchemaRegister, register_schema);
  set(NVTX3EXT_CBID_nvtxPayloadEnumRegister, register_enum);
  set(NVTX3EXT_CBID_nvtxMarkPayload,
      +[](Handle d, Data p, size_t n) { mark(Domain::of(d), EventInput(p, n)); });
  set(NVTX3EXT_CBID_nvtxRangePushPayload,
      +[](Handle d, Data p, size_t n) { return push(Domain::of(d), EventInput(p, n)); });
  set(NVTX3EXT_CBID_nvtxRangePopPayload,
      +[](Handle d, Data p, size_t n) { return pop(Domain::of(d), EventInput(p, n)); });
  set(NVTX3EXT_CBID_nvtxRangeStartPayload,
      +[](Handle d, Data p, size_t n) { return start_range(Domain::of(d), EventInput(p, n)); });
  set(NVTX3EXT_CBID_nvtxRangeEndPayload, +[](Handle d, nvtxRangeId_t id, Data p, size_t n) {
    end_range(Domain::of(d), id, EventInput(p, n));
  });
  set(NVTX3EXT_CBID_nvtxDomainIsEnabled, +[](Handle) { return uint8_t{1}; });
  set(NVTX3EXT_CBID_nvtxScopeRegister, no_scope);
  set(NVTX3EXT_CBID_nvtxTimestampGet, +[] { return now(); });
}

template <typename Set>
void fill_counters(Set set) {
  set(NVTX3EXT_CBID_nvtxCounterRegister, register_counter);
  set(NVTX3EXT_CBID_nvtxCounterSampleInt64,
      +[](Handle d, uint64_t id, int64_t value) { sample(d, id, capture::kValueInt, value); });
  set(NVTX3EXT_CBID_nvtxCounterSampleFloat64, +[](Handle d, uint64_t id, double value) {
    sample(d, id, capture::kValueDouble, std::bit_cast<int64_t>(value));
  });
  set(NVTX3EXT_CBID_nvtxCounterSample, sample_at);
}
// clang-format on

}  // namespace
}  // namespace opspan::collectors

extern "C" __attribute__((visibility("default"))) int InitializeInjectionNvtxExtension(nvtxExtModuleInfo_t* module) {
  using namespace opspan::collectors;
  if (!is_collecting() || !module || !module->segments || !module->segmentsCount) return 0;
  nvtxExtModuleSegment_t& segment = module->segments[0];
  auto set = [&segment](size_t slot, auto* function) {
    if (segment.functionSlots && slot < segment.slotCount)
      segment.functionSlots[slot] = reinterpret_cast<intptr_t>(function);
  };
  if (module->moduleId == NVTX_EXT_PAYLOAD_MODULEID) {
    fill_payload(set);
  } else if (module->moduleId == NVTX_EXT_COUNTERS_MODULEID) {
    fill_counters(set);
  } else {
    return 0;
  }
  return 1;
}
