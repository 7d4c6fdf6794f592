// Reads and compares sixteen letters of a text in one step, with SSE2 or NEON. OPSPAN_READS_PAST_ENDS is defined if
// that is possible. Otherwise texts are read letter by letter.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
// These sanitizers report each read past the end of a text.
#elif defined(__SSE2__)
#define OPSPAN_READS_PAST_ENDS
#include <emmintrin.h>
#elif defined(__aarch64__) && !defined(OPSPAN_NO_NEON)
#define OPSPAN_READS_PAST_ENDS
#include <arm_neon.h>
#endif

namespace opspan::capture {

// The number of letters that are read in one step. A read may go past the end of a text, but not past the end of the
// memory page. Letters after the end of the text are ignored.
inline constexpr size_t kLetters = 16;

#ifdef OPSPAN_READS_PAST_ENDS

// Returns whether reading kLetters letters stays within a page of 4 KiB. A larger page consists of such pages.
inline bool can_read(const char* text) {
  constexpr uintptr_t kPageBytes = 4096;
  return reinterpret_cast<uintptr_t>(text) % kPageBytes <= kPageBytes - kLetters;
}

#ifdef __SSE2__

using Vector = __m128i;

// A mask has one bit for each letter.
using Mask = uint32_t;
inline constexpr Mask kAllLetters = 0xffff;

inline Vector read_letters(const char* text) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(text)); }
inline Vector zeros() { return _mm_setzero_si128(); }

// Returns a mask of the letters that are the same in `one` and `other`.
inline Mask equal_letters(Vector one, Vector other) {
  return static_cast<Mask>(_mm_movemask_epi8(_mm_cmpeq_epi8(one, other)));
}

// Returns the number of letters before the first in the mask; kLetters if it is empty.
inline int letters_before(Mask mask) { return std::countr_zero(mask | 1u << kLetters); }

// Replaces the letters after the first `count` by zeros.
inline Vector first_letters(Vector letters, int count) {
  const __m128i places = _mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  return _mm_and_si128(letters, _mm_cmplt_epi8(places, _mm_set1_epi8(static_cast<char>(count))));
}

inline uint64_t first_word(Vector letters) { return static_cast<uint64_t>(_mm_cvtsi128_si64(letters)); }
inline uint64_t second_word(Vector letters) {
  return static_cast<uint64_t>(_mm_cvtsi128_si64(_mm_unpackhi_epi64(letters, letters)));
}

#else

using Vector = uint8x16_t;

// A mask has four bits for each letter, because NEON has no instruction that gathers one bit of each. All four are set,
// or none.
using Mask = uint64_t;
inline constexpr Mask kAllLetters = ~Mask{0};

inline Vector read_letters(const char* text) { return vld1q_u8(reinterpret_cast<const uint8_t*>(text)); }
inline Vector zeros() { return vdupq_n_u8(0); }

// Returns a mask of the letters that are the same in `one` and `other`.
inline Mask equal_letters(Vector one, Vector other) {
  const uint8x8_t mask = vshrn_n_u16(vreinterpretq_u16_u8(vceqq_u8(one, other)), 4);
  return vget_lane_u64(vreinterpret_u64_u8(mask), 0);
}

// Returns the number of letters before the first in the mask; kLetters if it is empty.
inline int letters_before(Mask mask) { return std::countr_zero(mask) / 4; }

// Replaces the letters after the first `count` by zeros.
inline Vector first_letters(Vector letters, int count) {
  constexpr uint8_t kPlaces[kLetters] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  return vandq_u8(letters, vcltq_u8(vld1q_u8(kPlaces), vdupq_n_u8(static_cast<uint8_t>(count))));
}

inline uint64_t first_word(Vector letters) { return vgetq_lane_u64(vreinterpretq_u64_u8(letters), 0); }
inline uint64_t second_word(Vector letters) { return vgetq_lane_u64(vreinterpretq_u64_u8(letters), 1); }

#endif

#endif

}  // namespace opspan::capture
