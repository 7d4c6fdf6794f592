// Units in a chunk of halves: which of them are short, and how they are written and ended.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "capture/format.h"

namespace opspan::capture {

// Can it be told in half a line?
inline bool is_short(const Event& event) {
  constexpr uint16_t kFits = kValueInt | kHasForward | kHasStack | kHasOverload;
  const auto& range = event.range;
  bool is_plain = event.kind == static_cast<uint8_t>(Unit::kRange) &&
                  event.source == static_cast<uint8_t>(Source::kTorch) && !(event.flags & ~kFits) &&
                  !(range.domain | range.sizes | range.color | range.schema) && !range.end_ns;
  auto value = event.flags & kValueInt ? static_cast<uint64_t>(range.value) : 0;
  return is_plain && !((range.id | value) >> 32) && range.category < 16;
}

using HalfWord [[gnu::may_alias]] = uint64_t;

// Word by word, as they were just written: wider loads would have to wait until those stores are done. The first last.
inline void write_whole(Half* at, const Event& event) {
  for (size_t i = 0; i < std::size(event.words); ++i) {
    __atomic_store_n(&at->words[0] + 1 + i, event.words[i], __ATOMIC_RELAXED);
  }
  __atomic_store_n(&at->words[0], *reinterpret_cast<const HalfWord*>(&event), __ATOMIC_RELEASE);
}

inline void write_short(Half* at, const Event& event) {
  auto flag = [&](uint16_t of_event, uint64_t of_short) { return event.flags & of_event ? of_short : 0; };
  uint64_t what = event.range.category | flag(kValueInt, kShortValue) | flag(kHasForward, kShortForward) |
                  flag(kHasStack, kShortStack) | flag(kHasOverload, kShortOverload);
  auto store = [&](int word, uint64_t value) { __atomic_store_n(&at->words[word], value, __ATOMIC_RELAXED); };
  store(1, static_cast<uint64_t>(event.range.start_ns));
  store(2, uint64_t{event.range.forward_tid} << 32);
  store(3, static_cast<uint64_t>(event.range.value) << 32 | event.range.id);
  uint64_t first = uint64_t{event.name} << 32 | what << 8 | static_cast<uint64_t>(Unit::kShort);
  __atomic_store_n(&at->words[0], first, __ATOMIC_RELEASE);
}

inline void end_short(Half* at, int64_t start_ns, int64_t end_ns) {
  auto* unit = reinterpret_cast<Short*>(at);
  uint64_t took = static_cast<uint64_t>(std::max<int64_t>(end_ns - start_ns, 0)) + 1;
  if (took >> 32) [[unlikely]] {
    took |= !static_cast<uint32_t>(took);  // 0 would be open: rather a nanosecond more
    __atomic_store_n(&unit->took_high, static_cast<uint16_t>(took >> 32), __ATOMIC_RELAXED);
  }
  __atomic_store_n(&unit->took, static_cast<uint32_t>(took), __ATOMIC_RELEASE);
}

}  // namespace opspan::capture
