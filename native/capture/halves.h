// Units in a chunk of halves: what those of half a line are, which can be told so, and how they are written and ended.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "capture/format.h"
#include "capture/hash.h"

namespace opspan::capture {

// A unit takes two halves of a line; its number is that of the first. A Short, a Like or a Block takes one. Where a
// unit follows a single one of those, the other half of that line stays empty.
struct alignas(kHalfBytes) Half {
  uint64_t words[4];
};

// All that is told of most ops.
struct Short {
  uint8_t kind;  // Unit::kShort
  uint8_t what;  // Kind, and in the upper half of it, as follows
  uint16_t took_high;
  uint32_t name;
  int64_t start_ns;
  uint32_t took;   // 0: still open; else end - start + 1 (with took_high above it)
  uint32_t extra;  // kShortForward: as forward_tid; kShortStack: as stack
  uint32_t id;
  uint32_t value;  // kShortValue
};
static_assert(sizeof(Short) == kHalfBytes);
inline constexpr uint8_t kShortValue = 16;      // kValueInt
inline constexpr uint8_t kShortForward = 32;    // kHasForward
inline constexpr uint8_t kShortStack = 64;      // kHasStack
inline constexpr uint8_t kShortOverload = 128;  // kHasOverload

// Whatever else ranges have, many have the same: the second of its kind writes a kModel, which is a kRange without
// times, value, id and `extra`, and it and those after it refer to that. An id or a value of 2^32 or more takes a whole
// unit.
struct Like {
  uint8_t kind;  // Unit::kLike
  uint8_t what;  // kValueMask of the flags
  uint16_t took_high;
  uint32_t model;  // the lower bits of its number: the last such number before this one
  int64_t start_ns;
  uint32_t took;   // as of a Short
  uint32_t extra;  // forward_tid or stack; of a kHasLabel on ITT the lower bits of its parent
  uint32_t id;
  uint32_t value;
};
static_assert(sizeof(Like) == kHalfBytes);

struct Block {
  uint64_t what;  // Unit::kBlock, flags << 8, address << 16
  int64_t time_ns;
  int64_t bytes;
  int64_t total;
};
static_assert(sizeof(Block) == kHalfBytes);

using HalfWord [[gnu::may_alias]] = uint64_t;

inline uint64_t first_word(const Event& event) { return *reinterpret_cast<const HalfWord*>(&event); }

inline uint64_t value_of(const Event& event) {
  return event.flags & kValueMask ? static_cast<uint64_t>(event.range.value) : 0;
}

// A range of torch's with no more than has room in half a line.
struct Brief {
  uint16_t flags;  // of kBriefFlags
  uint32_t name;
  uint32_t category;  // less than 16
  uint32_t extra;     // forward_tid or stack
  int64_t start_ns;
  int64_t value;
  uint64_t id;

  bool is_short() const { return !((id | (flags & kValueInt ? static_cast<uint64_t>(value) : 0)) >> 32); }
};
inline constexpr uint16_t kBriefFlags = kValueInt | kHasForward | kHasStack | kHasOverload;

inline Event whole(const Brief& range) {
  Event event;
  event.kind = static_cast<uint8_t>(Unit::kRange);
  event.source = static_cast<uint8_t>(Source::kTorch);
  event.flags = range.flags;
  event.name = range.name;
  event.range = {};
  event.range.start_ns = range.start_ns;
  event.range.value = range.value;
  event.range.id = range.id;
  event.range.category = range.category;
  event.range.forward_tid = range.extra;
  return event;
}

// An open range whose id and value have room in half a line?
inline bool is_small(const Event& event) {
  return event.kind == static_cast<uint8_t>(Unit::kRange) && !event.range.end_ns &&
         !((event.range.id | value_of(event)) >> 32);
}

// Can it be told as a Short?
inline bool is_short(const Event& event) {
  const auto& range = event.range;
  return event.source == static_cast<uint8_t>(Source::kTorch) && !(event.flags & ~kBriefFlags) && is_small(event) &&
         !(range.domain | range.sizes | range.color | range.schema) && range.category < 16;
}

// Memory of the host, at an address that has room in a Block.
inline bool is_hosts(int32_t device_type, int32_t device_index, uint64_t address) {
  return !device_type && device_index == -1 && !(address >> 48);
}

// As a Block?
inline bool is_block(const Event& event) {
  const auto& memory = event.memory;
  return event.kind == static_cast<uint8_t>(Unit::kMemory) && event.flags < 256 &&
         is_hosts(memory.device_type, memory.device_index, memory.address);
}

inline Block block_of(uint64_t flags, uint64_t address, int64_t time_ns, int64_t bytes, int64_t total) {
  return {address << 16 | flags << 8 | static_cast<uint64_t>(Unit::kBlock), time_ns, bytes, total};
}

// What a range has in common with others. Not in it: what a Like has room for.
struct Common {
  uint64_t words[4];  // the first of the event, and its last three; all 0: of none
  bool operator==(const Common&) const = default;

  uint64_t hash() const { return fold(words[0] ^ words[1] * kOdd, words[2] ^ kOdd) ^ words[3] * 0xc2b2ae3d27d4eb4f; }
};
struct Apart {
  Common common;
  uint32_t extra;
};

inline Apart apart(const Event& event) {
  constexpr uint64_t kLow = 0xffffffff;
  constexpr uint64_t kValueBits = uint64_t{kValueMask} << 16;
  Apart found{{{first_word(event) & ~kValueBits, event.words[4], event.words[5], event.words[6]}}, 0};
  bool has_parent = event.flags & kHasLabel && event.source == static_cast<uint8_t>(Source::kItt);
  uint64_t& of_extra = found.common.words[has_parent ? 3 : 2];
  found.extra = static_cast<uint32_t>(of_extra);
  of_extra &= ~kLow;
  return found;
}

inline Event model_of(const Common& common) {
  Event event{};
  *reinterpret_cast<HalfWord*>(&event) = common.words[0];
  event.kind = static_cast<uint8_t>(Unit::kModel);
  std::copy_n(common.words + 1, 3, event.words + 4);
  return event;
}

// Word by word, as they were just written: wider loads would have to wait until those stores are done. The first last.
inline void write_whole(Half* at, const Event& event) {
  for (size_t i = 0; i < std::size(event.words); ++i) {
    __atomic_store_n(&at->words[0] + 1 + i, event.words[i], __ATOMIC_RELAXED);
  }
  __atomic_store_n(&at->words[0], first_word(event), __ATOMIC_RELEASE);
}

inline void write_half(Half* at, uint64_t first, uint64_t second, uint64_t third, uint64_t last) {
  __atomic_store_n(&at->words[1], second, __ATOMIC_RELAXED);
  __atomic_store_n(&at->words[2], third, __ATOMIC_RELAXED);
  __atomic_store_n(&at->words[3], last, __ATOMIC_RELAXED);
  __atomic_store_n(&at->words[0], first, __ATOMIC_RELEASE);
}

// What Short and Like have alike.
inline void write_range(Half* at, Unit kind, uint64_t what, uint64_t upper, int64_t start_ns, uint64_t extra,
                        int64_t value, uint64_t id) {
  write_half(at, upper << 32 | what << 8 | static_cast<uint64_t>(kind), static_cast<uint64_t>(start_ns), extra << 32,
             static_cast<uint64_t>(value) << 32 | id);
}

inline void write_short(Half* at, const Brief& range) {
  auto flag = [&](uint16_t of_range, uint64_t of_short) { return range.flags & of_range ? of_short : 0; };
  const uint64_t what = range.category | flag(kValueInt, kShortValue) | flag(kHasForward, kShortForward) |
                        flag(kHasStack, kShortStack) | flag(kHasOverload, kShortOverload);
  write_range(at, Unit::kShort, what, range.name, range.start_ns, range.extra, range.value, range.id);
}

inline void write_like(Half* at, const Event& event, uint64_t model, uint32_t extra) {
  write_range(at, Unit::kLike, event.flags & kValueMask, model & 0xffffffff, event.range.start_ns, extra,
              event.range.value, event.range.id);
}

// With a model of ranges that have `extra` where those of a Brief have it.
inline void write_like(Half* at, const Brief& range, uint64_t model) {
  write_range(at, Unit::kLike, range.flags & kValueMask, model & 0xffffffff, range.start_ns, range.extra, range.value,
              range.id);
}

inline void write_block(Half* at, const Block& block) {
  write_half(at, block.what, static_cast<uint64_t>(block.time_ns), static_cast<uint64_t>(block.bytes),
             static_cast<uint64_t>(block.total));
}

// A Like ends as a Short does. False: it took three days or more, which has no room in it.
inline bool end_half(Half* at, int64_t start_ns, int64_t end_ns) {
  constexpr uint64_t kMostHigh = 0xffff;
  auto* unit = reinterpret_cast<Short*>(at);
  // A client's times may be any numbers, whose difference is none of int64_t.
  const uint64_t lasted = end_ns > start_ns ? static_cast<uint64_t>(end_ns) - static_cast<uint64_t>(start_ns) : 0;
  uint64_t took = lasted + 1;
  if (lasted >> 32 || took >> 32) [[unlikely]] {
    if (lasted >> 32 >= kMostHigh) return false;
    took |= !static_cast<uint32_t>(took);  // 0 would be open: rather a nanosecond more
    __atomic_store_n(&unit->took_high, static_cast<uint16_t>(took >> 32), __ATOMIC_RELAXED);
  }
  __atomic_store_n(&unit->took, static_cast<uint32_t>(took), __ATOMIC_RELEASE);
  return true;
}

}  // namespace opspan::capture
