// Tells whether bytes are UTF-8 as Unicode defines it: without overlong forms, surrogates and characters above
// U+10FFFF.
#pragma once

#include <cstring>
#include <string_view>

namespace opspan::sqlite {

inline bool is_utf8(std::string_view text) {
  const auto* at = reinterpret_cast<const unsigned char*>(text.data());
  const auto* end = at + text.size();
  while (at < end) {
    if (end - at >= 8) {
      uint64_t word;
      std::memcpy(&word, at, sizeof word);
      if ((word & 0x8080808080808080u) == 0) {
        at += 8;
        continue;
      }
    }
    const unsigned char first = *at++;
    if (first < 0x80) continue;
    if (first < 0xc2 || first > 0xf4) return false;
    const int more = first < 0xe0 ? 1 : first < 0xf0 ? 2 : 3;
    if (end - at < more) return false;
    const unsigned char second = *at;
    if (first == 0xe0 && second < 0xa0) return false;
    if (first == 0xed && second > 0x9f) return false;
    if (first == 0xf0 && second < 0x90) return false;
    if (first == 0xf4 && second > 0x8f) return false;
    for (int byte = 0; byte < more; ++byte) {
      if ((*at++ & 0xc0) != 0x80) return false;
    }
  }
  return true;
}

}  // namespace opspan::sqlite
