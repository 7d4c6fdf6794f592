// The units that take half a cache line, in a chunk of the kind kHalves: their layouts, tests whether an event fits
// into such a unit, and functions that write and end these units.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "capture/format.h"
#include "capture/hash.h"

namespace opspan::capture {

// Half of a cache line. A full unit takes two halves, and its number is that of the first half. A Short, a Like or a
// Block takes one half. A full unit begins at the start of a line. If a single half comes before it, the other half of
// that line stays empty.
struct alignas(kHalfBytes) Half {
  uint64_t words[4];
};

// A range in half a cache line, with the fields that most ops have.
struct Short {
  uint8_t kind;  // Unit::kShort
  uint8_t what;  // the lower four bits: Kind; the others: kShortValue to kShortOverload
  uint16_t took_high;
  uint32_t name;
  int64_t start_ns;
  uint32_t took;   // lower 32 bits of end - start + 1 (took_high has the upper bits); 0: still open
  uint32_t extra;  // with kShortForward: forward_tid; with kShortStack: stack
  uint32_t id;
  uint32_t value;  // valid if kShortValue is set
};
static_assert(sizeof(Short) == kHalfBytes);
inline constexpr uint8_t kShortValue = 16;      // as kValueInt
inline constexpr uint8_t kShortForward = 32;    // as kHasForward
inline constexpr uint8_t kShortStack = 64;      // as kHasStack
inline constexpr uint8_t kShortOverload = 128;  // as kHasOverload

// A range in half a cache line that holds only its times, value, id and `extra`. All other fields are those of a kModel
// unit. The kModel unit is written with the second range that has the same fields. This range and later ones become
// Likes, which refer to the kModel unit, their model. A range whose id or value is 2^32 or more needs a full unit.
struct Like {
  uint8_t kind;  // Unit::kLike
  uint8_t what;  // the flags that are in kValueMask
  uint16_t took_high;
  // The lower 32 bits of the number of the kModel unit that has this range's other fields: the last one before this
  // unit whose number ends with these bits.
  uint32_t model;
  int64_t start_ns;
  uint32_t took;   // as in Short
  uint32_t extra;  // forward_tid or stack; for kHasLabel on ITT, the lower bits of `parent`
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

// A range of torch's that has only the fields of a Short. Its id and value may be too large for a Short.
struct BriefRange {
  uint16_t flags;  // only flags in kBriefFlags
  uint32_t name;
  uint32_t category;  // a Kind, which is less than 16
  uint32_t extra;     // forward_tid or stack
  int64_t start_ns;
  int64_t value;
  uint64_t id;

  bool is_short() const { return !((id | (flags & kValueInt ? static_cast<uint64_t>(value) : 0)) >> 32); }
};
inline constexpr uint16_t kBriefFlags = kValueInt | kHasForward | kHasStack | kHasOverload;

inline Event full_event(const BriefRange& range) {
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

// Returns whether the event is an open range whose id and value fit into half a cache line.
inline bool is_small(const Event& event) {
  return event.kind == static_cast<uint8_t>(Unit::kRange) && !event.range.end_ns &&
         !((event.range.id | value_of(event)) >> 32);
}

// Returns whether the event can be written as a Short.
inline bool is_short(const Event& event) {
  const auto& range = event.range;
  return event.source == static_cast<uint8_t>(Source::kTorch) && !(event.flags & ~kBriefFlags) && is_small(event) &&
         !(range.domain | range.sizes | range.color | range.schema) && range.category < 16;
}

// Returns whether this is memory of the host, at an address that fits into a Block.
inline bool is_host_memory(int32_t device_type, int32_t device_index, uint64_t address) {
  return !device_type && device_index == -1 && !(address >> 48);
}

// Returns whether the event can be written as a Block.
inline bool is_block(const Event& event) {
  const auto& memory = event.memory;
  return event.kind == static_cast<uint8_t>(Unit::kMemory) && event.flags < 256 &&
         is_host_memory(memory.device_type, memory.device_index, memory.address);
}

inline Block block_of(uint64_t flags, uint64_t address, int64_t time_ns, int64_t bytes, int64_t total) {
  return {address << 16 | flags << 8 | static_cast<uint64_t>(Unit::kBlock), time_ns, bytes, total};
}

// The fields that ranges share through a kModel unit: all fields except those that a Like holds itself.
struct SharedFields {
  uint64_t words[4];  // the first word and the last three words of the event; all 0: empty
  bool operator==(const SharedFields&) const = default;

  uint64_t hash() const { return fold(words[0] ^ words[1] * kOdd, words[2] ^ kOdd) ^ words[3] * 0xc2b2ae3d27d4eb4f; }
};
struct SplitEvent {
  SharedFields shared;
  uint32_t extra;
};

inline SplitEvent split(const Event& event) {
  constexpr uint64_t kLow = 0xffffffff;
  constexpr uint64_t kValueBits = uint64_t{kValueMask} << 16;
  SplitEvent parts{{{first_word(event) & ~kValueBits, event.words[4], event.words[5], event.words[6]}}, 0};
  bool has_parent = event.flags & kHasLabel && event.source == static_cast<uint8_t>(Source::kItt);
  uint64_t& extra_word = parts.shared.words[has_parent ? 3 : 2];
  parts.extra = static_cast<uint32_t>(extra_word);
  extra_word &= ~kLow;
  return parts;
}

inline Event model_of(const SharedFields& shared) {
  Event event{};
  *reinterpret_cast<HalfWord*>(&event) = shared.words[0];
  event.kind = static_cast<uint8_t>(Unit::kModel);
  std::copy_n(shared.words + 1, 3, event.words + 4);
  return event;
}

// Copies the event word by word. Its words were stored just before, and a wider load would wait for those stores. The
// first word is written last.
inline void write_full(Half* at, const Event& event) {
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

// Writes the words that a Short and a Like have in common.
inline void write_range(Half* at, Unit kind, uint64_t what, uint64_t upper, int64_t start_ns, uint64_t extra,
                        int64_t value, uint64_t id) {
  write_half(at, upper << 32 | what << 8 | static_cast<uint64_t>(kind), static_cast<uint64_t>(start_ns), extra << 32,
             static_cast<uint64_t>(value) << 32 | id);
}

inline void write_short(Half* at, const BriefRange& range) {
  auto flag = [&](uint16_t range_flag, uint64_t short_flag) { return range.flags & range_flag ? short_flag : 0; };
  const uint64_t what = range.category | flag(kValueInt, kShortValue) | flag(kHasForward, kShortForward) |
                        flag(kHasStack, kShortStack) | flag(kHasOverload, kShortOverload);
  write_range(at, Unit::kShort, what, range.name, range.start_ns, range.extra, range.value, range.id);
}

inline void write_like(Half* at, const Event& event, uint64_t model, uint32_t extra) {
  write_range(at, Unit::kLike, event.flags & kValueMask, model & 0xffffffff, event.range.start_ns, extra,
              event.range.value, event.range.id);
}

// Writes a BriefRange as a unit of the kind kLike, which refers to an earlier unit, the model. `extra` must mean the
// same in the model and in the BriefRange.
inline void write_like(Half* at, const BriefRange& range, uint64_t model) {
  write_range(at, Unit::kLike, range.flags & kValueMask, model & 0xffffffff, range.start_ns, range.extra, range.value,
              range.id);
}

inline void write_block(Half* at, const Block& block) {
  write_half(at, block.what, static_cast<uint64_t>(block.time_ns), static_cast<uint64_t>(block.bytes),
             static_cast<uint64_t>(block.total));
}

// Writes the end of a range into its half-line unit. Returns false if the range lasted more than three days, which such
// a unit cannot express.
inline bool write_half_end(Half* at, int64_t start_ns, int64_t end_ns) {
  constexpr uint64_t kMostHigh = 0xffff;
  auto* unit = reinterpret_cast<Short*>(at);
  // A client may pass any times; their difference may not fit into int64_t.
  const uint64_t lasted = end_ns > start_ns ? static_cast<uint64_t>(end_ns) - static_cast<uint64_t>(start_ns) : 0;
  uint64_t took = lasted + 1;
  if (lasted >> 32 || took >> 32) [[unlikely]] {
    if (lasted >> 32 >= kMostHigh) return false;
    took |= !static_cast<uint32_t>(took);  // adds a nanosecond, because 0 means that the range is open
    __atomic_store_n(&unit->took_high, static_cast<uint16_t>(took >> 32), __ATOMIC_RELAXED);
  }
  __atomic_store_n(&unit->took, static_cast<uint32_t>(took), __ATOMIC_RELEASE);
  return true;
}

}  // namespace opspan::capture
