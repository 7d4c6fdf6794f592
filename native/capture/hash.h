// Hashes texts and arrays of 64-bit words. hash_of is for tables that compare their keys in full; Digest is for tables
// that compare only the hashes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace opspan::capture {

// Multiplies two numbers and combines the upper and lower half of the product, so every bit of either number affects
// every bit of the result.
inline uint64_t fold(uint64_t a, uint64_t b) {
  __extension__ using Wide = unsigned __int128;
  Wide product = static_cast<Wide>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

inline constexpr uint64_t kOdd = 0x9e3779b97f4a7c15;

template <typename T>
uint64_t load(const char* from) {
  T value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

// Hashes a text in words of eight bytes. The last word overlaps the word before it, so that it has eight bytes, too.
// Copying an unknown number of bytes into a word would be slow.
inline uint64_t hash_of(std::string_view text, uint64_t seed = 0) {
  const size_t size = text.size();
  const char* at = text.data();
  uint64_t hash = fold(seed ^ 0xd1b54a32d192ed03, size ^ kOdd);
  if (size >= 8) {
    for (size_t i = 0; i + 8 < size; i += 8) hash = fold(hash ^ load<uint64_t>(at + i), kOdd);
    hash = fold(hash ^ load<uint64_t>(at + size - 8), kOdd);
  } else if (size >= 4) {
    hash = fold(hash ^ (load<uint32_t>(at) << 32 | load<uint32_t>(at + size - 4)), kOdd);
  } else if (size) {
    hash =
        fold(hash ^ (load<uint8_t>(at) << 16 | load<uint8_t>(at + size / 2) << 8 | load<uint8_t>(at + size - 1)), kOdd);
  }
  return hash;
}

inline uint64_t hash_of(const int64_t* words, size_t count, uint64_t seed) {
  uint64_t hash = fold(seed ^ 0xd1b54a32d192ed03, count ^ kOdd);
  auto word = [words](size_t i) { return static_cast<uint64_t>(words[i]); };
  size_t i = 0;
  for (; i + 1 < count; i += 2) hash = fold(hash ^ word(i), word(i + 1) ^ kOdd);
  if (i < count) hash = fold(hash ^ word(i), kOdd);
  return hash;
}

// A hash of 128 bits. Inputs with equal digests are taken to be equal: a collision is less likely than a memory error.
struct Digest {
  uint64_t first = 0xd1b54a32d192ed03;
  uint64_t second = 0x8cb92ba72f3d8dd7;

  void add(uint64_t one, uint64_t other) {
    first = fold(first ^ one, other ^ kOdd);
    second = fold(second ^ other, one ^ 0xe7037ed1a0b428db);
  }
  void add(const int64_t* words, size_t count) {
    auto word = [words](size_t i) { return static_cast<uint64_t>(words[i]); };
    size_t i = 0;
    for (; i + 1 < count; i += 2) add(word(i), word(i + 1));
    add(i < count ? word(i) : 0, ~count);
  }
  bool operator==(const Digest&) const = default;
};

}  // namespace opspan::capture
