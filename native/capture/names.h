// What a thread knows of names of ops: a tool's handle, an id in a file. A name comes with nearly every range, so all
// that tells whether it is the same is in one cache line, and compared sixteen letters at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>

#include "capture/format.h"
#include "capture/hash.h"

#if defined(__SSE2__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define OPSPAN_READS_PAST_ENDS
#include <emmintrin.h>
#endif

namespace opspan::capture {

// Sixteen letters are read at a time: what is behind a text's end is on the same page, and of no account.
inline constexpr size_t kLetters = 16;

#ifdef OPSPAN_READS_PAST_ENDS
inline bool can_read(const char* text) {
  constexpr uintptr_t kPageBytes = 4096;
  return reinterpret_cast<uintptr_t>(text) % kPageBytes <= kPageBytes - kLetters;
}

inline __m128i read_letters(const char* text) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(text)); }

// A bit for each letter that is the same in both.
inline unsigned alike(__m128i one, __m128i other) {
  return static_cast<unsigned>(_mm_movemask_epi8(_mm_cmpeq_epi8(one, other)));
}
#endif

// `kept` is followed by zeros up to a multiple of kLetters.
inline bool is_same(const char* text, const char* kept) {
#ifdef OPSPAN_READS_PAST_ENDS
  for (; can_read(text); text += kLetters, kept += kLetters) {
    const __m128i letters = read_letters(kept);
    const unsigned ends = alike(letters, _mm_setzero_si128());
    const unsigned differ = alike(letters, read_letters(text)) ^ 0xffff;
    const unsigned either = ends | differ;
    if (either) return ends & ~differ & (either & -either);  // it ends before it differs
  }
#endif
  return !std::strcmp(text, kept);
}

// The next letters of a text, with zeros for those behind its end.
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
    const __m128i letters = read_letters(text);
    const unsigned ends = alike(letters, _mm_setzero_si128());
    const auto count = static_cast<char>(__builtin_ctz(ends | 1u << kLetters));
    const __m128i places = _mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m128i those = _mm_and_si128(letters, _mm_cmplt_epi8(places, _mm_set1_epi8(count)));
    return {static_cast<uint64_t>(_mm_cvtsi128_si64(those)),
            static_cast<uint64_t>(_mm_cvtsi128_si64(_mm_unpackhi_epi64(those, those)))};
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

// The name of an op, and how it is looked for.
struct OpName {
  static constexpr char kEngine[] = "autograd::engine::evaluate_function: ";  // those of Kind::kEngine begin with it

  const char* text;
  const char* told;  // what is behind kEngine
  bool is_engines;
  bool stays;  // torch's names of ops stay where they are: the address says where to look

  OpName(const char* name, uint32_t kind)
      : text(name),
        told(name),
        is_engines(kind == static_cast<uint32_t>(Kind::kEngine)),
        stays(kind == static_cast<uint32_t>(Kind::kOp)) {
    if (is_engines) told += sizeof(kEngine) - 1;
  }
};

// Of each name a Value of up to eight bytes. Long names are not kept, nor are more than two of one place.
template <class Value>
class Names {
 public:
  // Value(): it is not known.
  Value find(const OpName& name) const {
    if (!known_) [[unlikely]]
      return Value();
    const Known* known = &known_[place_of(name)];
    for (int way = 0; way < 2; ++way, ++known) {
      if (is_same(name.told, known->letters)) [[likely]]
        return known->values[name.is_engines];
    }
    return Value();
  }

  void keep(const OpName& name, Value value) {
    const size_t length = std::strlen(name.told);
    if (!length || length >= sizeof(Known::letters)) return;
    if (!known_ && !(known_ = std::unique_ptr<Known[]>(new (std::nothrow) Known[kNames]()))) return;
    Known* known = &known_[place_of(name)];
    if (is_same(name.told, known[1].letters)) {
      ++known;
    } else if (!is_same(name.told, known[0].letters)) {
      known[1] = known[0];  // the older of the two goes
      known[0] = {};
      std::memcpy(known[0].letters, name.told, length);
    }
    known->values[name.is_engines] = value;
  }

  void clear() {
    for (size_t i = 0; known_ && i < kNames; ++i) known_[i] = {};
  }

 private:
  struct alignas(64) Known {     // zeros: none
    char letters[3 * kLetters];  // the last is a zero
    Value values[2];             // of the name, and of an engine's range with it
  };
  static_assert(sizeof(Known) == 64);
  static constexpr size_t kNames = 256;  // a power of two

  static size_t place_of(const OpName& name) {
    uint64_t hash = reinterpret_cast<uintptr_t>(name.told) / kLetters;
    if (!name.stays) {
      const Letters first = letters_of(name.told);
      hash = first.hash();
      if (!first.has_end()) hash ^= ~letters_of(name.told + kLetters).hash();
    }
    return hash % (kNames / 2) * 2;
  }

  std::unique_ptr<Known[]> known_;
};

}  // namespace opspan::capture
