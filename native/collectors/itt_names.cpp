#include "collectors/itt_names.h"

#include <dlfcn.h>

#include <cstdio>
#include <deque>
#include <unordered_map>
#include <vector>

namespace opspan::collectors {
namespace {

struct Names {
  std::unordered_map<std::string_view, itt::Domain*> domains;
  std::unordered_map<std::string_view, itt::StringHandle*> strings;
  std::unordered_map<void*, capture::Constant*> functions;
  std::deque<itt::ClockDomain> clocks;
  // For each client's clock, the time of our own clock at the moment when the client's clock was last read. A client
  // may have made clocks before this library was loaded.
  std::unordered_map<const itt::ClockDomain*, int64_t> pinned;
};

Names& names() {
  static Names* instance = new Names;
  return *instance;
}

// Returns the interned text of an ITT handle, and keeps it in `extra2`, a field of the handle that is reserved for the
// tool.
template <typename Handle>
capture::Constant* text_of_handle(const Handle* handle, const char* text) {
  void** slot = &const_cast<Handle*>(handle)->extra2;
  if (void* name = __atomic_load_n(slot, __ATOMIC_ACQUIRE)) [[likely]]
    return static_cast<capture::Constant*>(name);
  capture::Constant* name = constant(text ? text : "");
  __atomic_store_n(slot, name, __ATOMIC_RELEASE);
  return name;
}

// Reads the client's clock without holding the registry's lock, because the client's function may call ITT.
int64_t pin(itt::ClockDomain* clock) {
  if (clock->fn) clock->fn(&clock->info, clock->fn_data);
  int64_t now_ns = now();
  std::lock_guard lock(registry());
  return names().pinned[clock] = now_ns;
}

// The most names in a list that a client made before this library was loaded. A longer list must be a ring.
constexpr int kLongestList = 1 << 20;

}  // namespace

itt::Domain* create_domain(const char* name) {
  if (!name) return nullptr;
  std::lock_guard lock(registry());
  auto& all = names().domains;
  if (auto entry = all.find(name); entry != all.end()) return entry->second;
  capture::Constant* text = constant_locked(name);
  auto* domain = new itt::Domain{1, text->text().c_str(), nullptr, 0, text, nullptr};
  return all.emplace(text->text(), domain).first->second;
}

itt::StringHandle* create_string(const char* text) {
  if (!text) return nullptr;
  std::lock_guard lock(registry());
  auto& all = names().strings;
  if (auto entry = all.find(text); entry != all.end()) return entry->second;
  capture::Constant* constant = constant_locked(text);
  auto* handle = new itt::StringHandle{constant->text().c_str(), nullptr, 0, constant, nullptr};
  return all.emplace(constant->text(), handle).first->second;
}

void adopt(const itt::Global& global) {
  std::lock_guard lock(registry());
  int count = 0;
  for (itt::Domain* domain = global.domain_list; domain && ++count < kLongestList; domain = domain->next) {
    if (domain->nameA) names().domains.emplace(constant_locked(domain->nameA)->text(), domain);
  }
  count = 0;
  for (itt::StringHandle* handle = global.string_list; handle && ++count < kLongestList; handle = handle->next) {
    if (handle->strA) names().strings.emplace(constant_locked(handle->strA)->text(), handle);
  }
}

capture::Constant* text_of(const itt::Domain* domain) {
  return domain ? text_of_handle(domain, domain->nameA) : nullptr;
}

capture::Constant* text_of(const itt::StringHandle* handle) {
  return handle ? text_of_handle(handle, handle->strA) : nullptr;
}

capture::Constant* text_of_function(void* address) {
  std::lock_guard lock(registry());
  capture::Constant*& name = names().functions[address];
  if (name) return name;
  Dl_info info{};
  if (dladdr(address, &info) && info.dli_sname) return name = constant_locked(info.dli_sname);
  char text[32];
  snprintf(text, sizeof(text), "%p", address);
  return name = constant_locked(text);
}

itt::ClockDomain* create_clock(itt::GetClockInfo fn, void* data) {
  itt::ClockDomain* clock;
  {
    std::lock_guard lock(registry());
    clock = &names().clocks.emplace_back(itt::ClockDomain{{1'000'000'000, 0}, fn, data, 0, nullptr, nullptr});
  }
  pin(clock);
  return clock;
}

void reset_clocks() {
  std::vector<itt::ClockDomain*> clocks;
  {
    std::lock_guard lock(registry());
    for (const auto& [clock, unused] : names().pinned) clocks.push_back(const_cast<itt::ClockDomain*>(clock));
  }
  for (itt::ClockDomain* clock : clocks) pin(clock);
}

int64_t time_ns(const itt::ClockDomain* clock, unsigned long long timestamp) {
  if (timestamp == ~0ULL) return now();                // ITT's value for "now"
  if (!clock) return static_cast<int64_t>(timestamp);  // the timestamp comes from our own __itt_get_timestamp
  int64_t base_ns = 0;
  {
    std::lock_guard lock(registry());
    if (auto entry = names().pinned.find(clock); entry != names().pinned.end()) base_ns = entry->second;
  }
  if (!base_ns) base_ns = pin(const_cast<itt::ClockDomain*>(clock));
  itt::ClockInfo info = clock->info;
  if (!info.frequency) return base_ns;
  auto ticks = static_cast<__int128>(timestamp) - static_cast<__int128>(info.base);
  return static_cast<int64_t>(base_ns + ticks * 1'000'000'000 / static_cast<__int128>(info.frequency));
}

}  // namespace opspan::collectors
