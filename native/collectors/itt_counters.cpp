// ITT's counters. A program may report increments, but a capture file holds values, so the sums are kept here.

#include <bit>
#include <cstring>
#include <map>

#include "collectors/itt_calls.h"

namespace opspan::collectors {

struct Counter {
  Counter(capture::Constant* text, capture::Constant* of, int values) : name(text), domain(of), type(values) {}
  capture::Constant* name;
  capture::Constant* domain;
  int type;
  std::atomic<uint64_t> value{0};
};

namespace {

constinit Handles<Counter> g_counters;

using Key = std::pair<capture::Constant*, capture::Constant*>;

Counter* find(capture::Constant* name, capture::Constant* domain, int type) {
  static auto* all = new std::map<Key, Counter*>;
  std::lock_guard lock(registry());
  Counter*& counter = (*all)[{name, domain}];
  if (!counter) counter = g_counters.add(name, domain, type);
  return counter;
}

// Returns the counter, or null if the client's handle is not a Counter. A client may pass any value as a handle.
Counter* valid_counter(Counter* counter) { return g_counters.find(counter); }

void write(const Counter& counter, uint16_t flag, uint64_t value, int64_t at_ns) {
  capture::Log* log = capture::log();
  if (!log) return;
  capture::Event event = event_of(capture::Unit::kCounter, capture::Source::kItt);
  event.flags = flag;
  event.name = intern(*log, counter.name);
  event.counter.domain = intern(*log, counter.domain);
  event.counter.value = static_cast<int64_t>(value);
  event.counter.time_ns = at_ns;
  log->append(event);
}

bool is_signed(const Counter& counter) {
  return counter.type == itt::kS64 || counter.type == itt::kS32 || counter.type == itt::kS16;
}

void step(Counter* counter, uint64_t delta) {
  if (!counter) return;
  uint64_t value = counter->value.fetch_add(delta, std::memory_order_relaxed) + delta;
  write(*counter, is_signed(*counter) ? capture::kValueInt : capture::kValueUint, value, now());
}

template <typename T>
T read(const void* from) {
  T value;
  memcpy(&value, from, sizeof(value));
  return value;
}

void set(Counter* counter, const void* from, int64_t at_ns) {
  if (!counter || !from) return;
  auto integer = [&](uint64_t value, uint16_t flag) {
    counter->value.store(value, std::memory_order_relaxed);
    write(*counter, flag, value, at_ns);
  };
  auto real = [&](double value) { write(*counter, capture::kValueDouble, std::bit_cast<uint64_t>(value), at_ns); };
  switch (counter->type) {
    case itt::kS64:
      return integer(static_cast<uint64_t>(read<int64_t>(from)), capture::kValueInt);
    case itt::kS32:
      return integer(static_cast<uint64_t>(int64_t{read<int32_t>(from)}), capture::kValueInt);
    case itt::kS16:
      return integer(static_cast<uint64_t>(int64_t{read<int16_t>(from)}), capture::kValueInt);
    case itt::kU32:
      return integer(read<uint32_t>(from), capture::kValueUint);
    case itt::kU16:
      return integer(read<uint16_t>(from), capture::kValueUint);
    case itt::kFloat:
      return real(read<float>(from));
    case itt::kDouble:
      return real(read<double>(from));
    default:  // ITT's default type is u64
      return integer(read<uint64_t>(from), capture::kValueUint);
  }
}

}  // namespace

Counter* counter_create_typed(const char* name, const char* domain, int type) {
  return find(constant(name ? name : ""), domain ? constant(domain) : nullptr, type);
}

Counter* counter_create(const char* name, const char* domain) { return counter_create_typed(name, domain, itt::kU64); }

Counter* counter_create_v3(DomainPtr domain, const char* name, int type) {
  return find(constant(name ? name : ""), text_of(domain), type);
}

void counter_inc(Counter* counter) { step(valid_counter(counter), 1); }
void counter_dec(Counter* counter) { step(valid_counter(counter), ~uint64_t{0}); }
void counter_inc_delta(Counter* counter, unsigned long long delta) { step(valid_counter(counter), delta); }
void counter_dec_delta(Counter* counter, unsigned long long delta) { step(valid_counter(counter), 0 - delta); }

void counter_inc_v3(DomainPtr domain, NamePtr name) { counter_inc_delta_v3(domain, name, 1); }
void counter_dec_v3(DomainPtr domain, NamePtr name) { counter_dec_delta_v3(domain, name, 1); }

void counter_inc_delta_v3(DomainPtr domain, NamePtr name, unsigned long long delta) {
  step(find(text_of(name), text_of(domain), itt::kU64), delta);
}

void counter_dec_delta_v3(DomainPtr domain, NamePtr name, unsigned long long delta) {
  step(find(text_of(name), text_of(domain), itt::kU64), 0 - delta);
}

void counter_set_value(Counter* counter, void* value) { set(valid_counter(counter), value, now()); }
void counter_set_value_v3(Counter* counter, void* value) { set(valid_counter(counter), value, now()); }

void counter_set_value_ex(Counter* counter, ClockPtr clock, Stamp stamp, void* value) {
  set(valid_counter(counter), value, time_ns(clock, stamp));
}

}  // namespace opspan::collectors
