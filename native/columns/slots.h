// The text between two values of an event is mostly the same as in earlier events:
//
//     "pid": 7, "tid": 9, "ts": 12.5        behind a tid comes `, "ts": `
//
// So all of the text is compared in one step, instead of being read letter by letter.
#pragma once

#include <algorithm>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "columns/json.h"

namespace opspan::columns {

// The value that a slot is for.
enum class ValueKind : uint8_t {
  kEnd,
  kPhase,
  kCategory,
  kName,
  kPid,
  kTid,
  kTime,
  kDuration,
  kId,
  kArgs,
  kArg,
  kRest,
  kOther
};

// A value of an event. Events whose members come in the same order share their slots.
struct Slot {
  // The text between the previous value and this value. At the end of an object, it includes the closing bracket.
  std::string_view lead;
  ValueKind kind = ValueKind::kOther;
  size_t arg = 0;         // for kArg, the index of the arg
  std::string key;        // for kRest, the key as it is written in the file
  std::string_view last;  // the bytes in the file that this value had in the last event
  uint32_t code = 0;      // the code of `last`
  std::vector<Slot*> next;
};

class Slots {
 public:
  // If the lead of a known slot comes next, takes the lead and returns the slot. Otherwise returns null.
  static Slot* follow(Json& json, Slot& before) {
    std::vector<Slot*>& next = before.next;
    for (size_t at = 0; at < next.size(); ++at) {
      Slot* slot = next[at];
      if (!json.take(slot->lead)) continue;
      if (at > 0) std::swap(next[at], next[at - 1]);  // slots that come often are tried first
      return slot;
    }
    return nullptr;
  }

  // Returns an empty slot, which does not follow any other slot.
  Slot& discarded() { return discarded_ = {}; }

  // Adds a slot for the value that follows the value of `before`. If there are too many slots already, the new slot is
  // valid only until the next slot is added.
  Slot& add(Slot& before, std::string_view lead) {
    const bool is_kept = &before != &discarded_ && before.next.size() < kMostNext && slots_.size() < kMost;
    Slot& slot = is_kept ? slots_.emplace_back() : discarded();
    if (is_kept) before.next.push_back(&slot);
    slot.lead = lead;
    return slot;
  }

 private:
  static constexpr size_t kMostNext = 16, kMost = 4096;
  std::deque<Slot> slots_;
  Slot discarded_;
};

}  // namespace opspan::columns
