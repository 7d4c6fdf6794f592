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
  // Clocks of the clients', with our time at the moment when theirs was last asked for. A client may have made some
  // before we were there.
  std::unordered_map<const itt::ClockDomain*, int64_t> pinned;
};

Names& names() {
  static Names* it = new Names;
  return *it;
}

// A handle is given its Constant once; `extra2` is reserved to the tool.
template <typename Handle>
capture::Constant* text_of_handle(const Handle* handle, const char* text) {
  void** slot = &const_cast<Handle*>(handle)->extra2;
  if (void* known = __atomic_load_n(slot, __ATOMIC_ACQUIRE)) [[likely]]
    return static_cast<capture::Constant*>(known);
  capture::Constant* made = constant(text ? text : "");
  __atomic_store_n(slot, made, __ATOMIC_RELEASE);
  return made;
}

// Not under the registry: the client's function may use ITT.
int64_t pin(itt::ClockDomain* clock) {
  if (clock->fn) clock->fn(&clock->info, clock->fn_data);
  int64_t now_ns = now();
  std::lock_guard lock(registry());
  return names().pinned[clock] = now_ns;
}

constexpr int kLongestList = 1 << 20;  // of names that a client made before we were there: a longer one is a circle

}  // namespace

itt::Domain* create_domain(const char* name) {
  if (!name) return nullptr;
  std::lock_guard lock(registry());
  auto& all = names().domains;
  if (auto found = all.find(name); found != all.end()) return found->second;
  capture::Constant* text = constant_held(name);
  auto* made = new itt::Domain{1, text->text().c_str(), nullptr, 0, text, nullptr};
  return all.emplace(text->text(), made).first->second;
}

itt::StringHandle* create_string(const char* text) {
  if (!text) return nullptr;
  std::lock_guard lock(registry());
  auto& all = names().strings;
  if (auto found = all.find(text); found != all.end()) return found->second;
  capture::Constant* kept = constant_held(text);
  auto* made = new itt::StringHandle{kept->text().c_str(), nullptr, 0, kept, nullptr};
  return all.emplace(kept->text(), made).first->second;
}

void adopt(const itt::Global& global) {
  std::lock_guard lock(registry());
  int count = 0;
  for (itt::Domain* it = global.domain_list; it && ++count < kLongestList; it = it->next) {
    if (it->nameA) names().domains.emplace(constant_held(it->nameA)->text(), it);
  }
  count = 0;
  for (itt::StringHandle* it = global.string_list; it && ++count < kLongestList; it = it->next) {
    if (it->strA) names().strings.emplace(constant_held(it->strA)->text(), it);
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
  capture::Constant*& known = names().functions[address];
  if (known) return known;
  Dl_info info{};
  if (dladdr(address, &info) && info.dli_sname) return known = constant_held(info.dli_sname);
  char text[32];
  snprintf(text, sizeof(text), "%p", address);
  return known = constant_held(text);
}

itt::ClockDomain* create_clock(itt::GetClockInfo fn, void* data) {
  itt::ClockDomain* made;
  {
    std::lock_guard lock(registry());
    made = &names().clocks.emplace_back(itt::ClockDomain{{1'000'000'000, 0}, fn, data, 0, nullptr, nullptr});
  }
  pin(made);
  return made;
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
  if (timestamp == ~0ULL) return now();                // "now"
  if (!clock) return static_cast<int64_t>(timestamp);  // from our own __itt_get_timestamp
  int64_t base_ns = 0;
  {
    std::lock_guard lock(registry());
    if (auto found = names().pinned.find(clock); found != names().pinned.end()) base_ns = found->second;
  }
  if (!base_ns) base_ns = pin(const_cast<itt::ClockDomain*>(clock));
  itt::ClockInfo info = clock->info;
  if (!info.frequency) return base_ns;
  auto ticks = static_cast<__int128>(timestamp) - static_cast<__int128>(info.base);
  return static_cast<int64_t>(base_ns + ticks * 1'000'000'000 / static_cast<__int128>(info.frequency));
}

}  // namespace opspan::collectors
