// The names of ops that a thread has seen, each with a value: a tool's handle, or an id in a file. Nearly every range
// looks up a name, so an entry fills one cache line, and sixteen letters are compared in one step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>

#include "capture/format.h"
#include "capture/hash.h"
#include "capture/letters.h"

namespace opspan::capture {

// Compares a text with a stored name, which is followed by zeros up to a multiple of kLetters.
inline bool matches(const char* text, const char* stored) {
#ifdef OPSPAN_READS_PAST_ENDS
  for (; can_read(text); text += kLetters, stored += kLetters) {
    const Vector letters = read_letters(stored);
    const Mask ends = equal_letters(letters, zeros());
    const Mask differ = equal_letters(letters, read_letters(text)) ^ kAllLetters;
    const Mask either = ends | differ;
    if (either) return ends & ~differ & (either & -either);  // the name ends before the first difference
  }
#endif
  return !std::strcmp(text, stored);
}

// The next kLetters letters of a text. Zeros follow the end of the text.
struct Letters {
  uint64_t first, second;
  bool has_end() const { return !(second >> 56); }
  uint64_t hash() const { return fold(first ^ kOdd, second ^ ~kOdd); }
};

[[gnu::cold]] inline Letters copied_letters(const char* text) {
  char letters[kLetters] = {};
  std::memcpy(letters, text, strnlen(text, kLetters));
  return {load<uint64_t>(letters), load<uint64_t>(letters + sizeof(uint64_t))};
}

inline Letters letters_of(const char* text) {
#ifdef OPSPAN_READS_PAST_ENDS
  if (can_read(text)) [[likely]] {
    const Vector letters = read_letters(text);
    const Vector valid = first_letters(letters, letters_before(equal_letters(letters, zeros())));
    return {first_word(valid), second_word(valid)};
  }
#endif
  return copied_letters(text);
}

inline void add_text(Digest& digest, const char* text) {
  for (;; text += kLetters) {
    const Letters letters = letters_of(text);
    digest.add(letters.first, letters.second);
    if (letters.has_end()) return;
  }
}

// The name of an op, prepared for being looked up.
struct OpName {
  static constexpr char kEngine[] = "autograd::engine::evaluate_function: ";  // how Kind::kEngine names begin

  const char* text;
  const char* key;  // the name, without kEngine at its beginning
  bool is_engine;
  bool is_permanent;  // torch never moves or frees the name, so its address serves as its hash

  OpName(const char* name, uint32_t kind)
      : text(name),
        key(name),
        is_engine(kind == static_cast<uint32_t>(Kind::kEngine)),
        is_permanent(kind == static_cast<uint32_t>(Kind::kOp)) {
    if (is_engine) key += sizeof(kEngine) - 1;
  }
};

// A cache from names to values of up to eight bytes. Each slot holds two names; a new name replaces the older of them.
// Long names are not stored.
template <class Value>
class Names {
 public:
  // Returns Value() if the name is not known.
  Value find(const OpName& name) const {
    if (!entries_) [[unlikely]]
      return Value();
    const Entry* entry = &entries_[slot_of(name)];
    for (int way = 0; way < 2; ++way, ++entry) {
      if (matches(name.key, entry->letters)) [[likely]]
        return entry->values[name.is_engine];
    }
    return Value();
  }

  void add(const OpName& name, Value value) {
    const size_t length = std::strlen(name.key);
    if (!length || length >= sizeof(Entry::letters)) return;
    if (!entries_ && !(entries_ = std::unique_ptr<Entry[]>(new (std::nothrow) Entry[kEntries]()))) return;
    Entry* entry = &entries_[slot_of(name)];
    if (matches(name.key, entry[1].letters)) {
      ++entry;
    } else if (!matches(name.key, entry[0].letters)) {
      entry[1] = entry[0];  // moves the newer name to the second entry, over the older name
      entry[0] = {};
      std::memcpy(entry[0].letters, name.key, length);
    }
    entry->values[name.is_engine] = value;
  }

  void clear() {
    for (size_t i = 0; entries_ && i < kEntries; ++i) entries_[i] = {};
  }

 private:
  struct alignas(64) Entry {     // all zeros: empty
    char letters[3 * kLetters];  // the name, with zeros behind it
    Value values[2];             // the value for the name itself, and the value for the name with kEngine before it
  };
  static_assert(sizeof(Entry) == 64);
  static constexpr size_t kEntries = 256;  // a power of two

  static size_t slot_of(const OpName& name) {
    uint64_t hash = reinterpret_cast<uintptr_t>(name.key) / kLetters;
    if (!name.is_permanent) {
      const Letters first = letters_of(name.key);
      hash = first.hash();
      if (!first.has_end()) hash ^= ~letters_of(name.key + kLetters).hash();
    }
    return hash % (kEntries / 2) * 2;
  }

  std::unique_ptr<Entry[]> entries_;
};

}  // namespace opspan::capture
