#include "collectors/itt_names.h"

#include <dlfcn.h>

#include <cstdio>
#include <deque>
#include <unordered_map>

namespace opspan::collectors {
namespace {

// A clock of the client's own, pinned to ours at the moment it was made or reset.
struct Clock {
  itt::ClockDomain face;  // first: clients hold its address
  int64_t base_ns;
};

struct Names {
  std::unordered_map<std::string_view, itt::Domain*> domains;
  std::unordered_map<std::string_view, itt::StringHandle*> strings;
  std::unordered_map<void*, capture::Constant*> functions;
  std::deque<Clock> clocks;
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

void pin(Clock* clock) {
  if (clock->face.fn) clock->face.fn(&clock->face.info, clock->face.fn_data);
  clock->base_ns = capture::now_ns();
}

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
  for (itt::Domain* it = global.domain_list; it; it = it->next) {
    if (it->nameA) names().domains.emplace(constant_held(it->nameA)->text(), it);
  }
  for (itt::StringHandle* it = global.string_list; it; it = it->next) {
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
  std::lock_guard lock(registry());
  Clock& made = names().clocks.emplace_back(Clock{{{1'000'000'000, 0}, fn, data, 0, nullptr, nullptr}, 0});
  pin(&made);
  return &made.face;
}

void reset_clocks() {
  std::lock_guard lock(registry());
  for (Clock& clock : names().clocks) pin(&clock);
}

int64_t time_ns(const itt::ClockDomain* face, unsigned long long timestamp) {
  if (timestamp == ~0ULL) return capture::now_ns();   // "now"
  if (!face) return static_cast<int64_t>(timestamp);  // from our own __itt_get_timestamp
  std::lock_guard lock(registry());
  auto* clock = reinterpret_cast<const Clock*>(face);
  if (!face->info.frequency) return clock->base_ns;
  auto ticks = static_cast<__int128>(timestamp) - static_cast<__int128>(face->info.base);
  return clock->base_ns + static_cast<int64_t>(ticks * 1'000'000'000 / static_cast<__int128>(face->info.frequency));
}

}  // namespace opspan::collectors
