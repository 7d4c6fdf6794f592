#include "columns/json.h"

#include <algorithm>
#include <array>
#include <utility>

#include "columns/columns.h"

namespace opspan::columns {
namespace {

enum : uint8_t { kPlain, kQuote, kEscape, kOdd };

constexpr std::array<uint8_t, 256> kinds_of_bytes() {
  std::array<uint8_t, 256> kinds{};
  for (size_t byte = 0; byte < kinds.size(); ++byte) kinds[byte] = byte < 0x20 || byte >= 0x7f ? kOdd : kPlain;
  kinds['"'] = kQuote;
  kinds['\\'] = kEscape;
  return kinds;
}
constexpr auto kKinds = kinds_of_bytes();

uint8_t kind(char byte) { return kKinds[static_cast<uint8_t>(byte)]; }

// Returns a word with a mark, the highest bit, in each byte that is not plain in `word`. Only the lowest mark is
// reliable: a byte above it may be marked by mistake.
uint64_t not_plain(uint64_t word) {
  constexpr uint64_t kOnes = 0x0101010101010101u, kTops = kOnes << 7;
  auto zeros = [](uint64_t bytes) { return (bytes - kOnes) & ~bytes & kTops; };
  const uint64_t controls = (word - kOnes * 0x20) & ~word;
  return ((word | controls) & kTops) | zeros(word ^ (kOnes * '"')) | zeros(word ^ (kOnes * '\\')) |
         zeros(word ^ (kOnes * 0x7f));
}

// Returns the position of the first byte that is not plain. It checks eight bytes in one step.
const char* behind_plain(const char* at, const char* end) {
  for (; end - at >= 8; at += 8) {
    const uint64_t odd = not_plain(load<uint64_t>(at));
    if (odd != 0) return at + std::countr_zero(odd) / 8;
  }
  while (at != end && kind(*at) == kPlain) ++at;
  return at;
}

}  // namespace

Json::String Json::string() {
  expect('"');
  const char* from = at_;
  bool plain = true;
  while (true) {
    at_ = behind_plain(at_, end_);
    if (at_ == end_) throw Cut();
    const uint8_t byte = kind(*at_++);
    if (byte == kQuote) return {{from, static_cast<size_t>(at_ - 1 - from)}, plain};
    plain = false;
    if (byte != kEscape) continue;
    if (at_ == end_) throw Cut();
    ++at_;
  }
}

std::string_view Json::word() {
  peek();
  const char* from = at_;
  while (at_ != end_ && is_word(*at_)) ++at_;
  if (at_ == end_) throw Cut();  // the word may continue after the end of the bytes
  if (at_ == from) throw Bad();
  return {from, static_cast<size_t>(at_ - from)};
}

std::optional<std::string_view> Json::balanced_list() {
  if (at_ == end_ || *at_ != '[') return {};
  size_t depth = 0;
  for (const char* at = at_; at != end_; ++at) {
    if (*at == '[') {
      ++depth;
    } else if (*at == ']') {
      if (--depth > 0) continue;
      const char* from = at_;
      at_ = at + 1;
      return std::string_view(from, static_cast<size_t>(at_ - from));
    } else if (*at == '"') {
      for (++at; at != end_ && *at != '"'; ++at) {
        if (*at == '\\' && ++at == end_) return {};
      }
      if (at == end_) return {};
    }
  }
  return {};
}

namespace {

// Escapes the text from `at` to `stop`. If `stop` is inside a character, escapes all of that character. `end` is the
// end of the complete text. Returns the positions at which reading and writing stopped.
std::pair<const char*, char*> escaped(const char* at, const char* stop, const char* end, char* to, Controls controls) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  constexpr std::string_view kControls = "\b\t\n\f\r", kShort = "btnfr";
  // JavaScript treats these two characters as line ends, and a viewer's page may contain the text in a script.
  constexpr std::string_view kLineEnd = "\xe2\x80\xa8", kParagraphEnd = "\xe2\x80\xa9";
  auto write = [&](std::initializer_list<char> letters) { to = std::copy(letters.begin(), letters.end(), to); };
  while (true) {
    uint64_t odd = 0;
    for (; at < stop && end - at >= 8; at += 8, to += 8) {
      std::memcpy(to, at, 8);
      odd = not_plain(load<uint64_t>(at));
      if (odd == 0) continue;
      at += std::countr_zero(odd) / 8;
      to += std::countr_zero(odd) / 8;
      break;
    }
    if (odd == 0) {
      while (at < stop && kind(*at) == kPlain) *to++ = *at++;
    }
    if (at >= stop) return {at, to};
    const char letter = *at;
    const auto byte = static_cast<uint8_t>(letter);
    if (letter == '"' || letter == '\\') {
      write({'\\', letter});
    } else if (const size_t place = kControls.find(letter);
               controls == Controls::kShort && place != std::string_view::npos) {
      write({'\\', kShort[place]});
    } else if (byte < 0x20 || byte == 0x7f) {
      write({'\\', 'u', '0', '0', kDigits[byte >> 4], kDigits[byte & 15]});
    } else if (const std::string_view three(at, std::min<size_t>(3, static_cast<size_t>(end - at)));
               three == kLineEnd || three == kParagraphEnd) {
      write({'\\', 'u', '2', '0', '2', three == kLineEnd ? '8' : '9'});
      at += 2;
    } else {
      *to++ = letter;
    }
    ++at;
  }
}

}  // namespace

char* escape(std::string_view text, char* to, Controls controls) {
  const char* end = text.data() + text.size();
  return escaped(text.data(), end, end, to, controls).second;
}

void quote(std::string_view text, std::string& out, Controls controls) {
  constexpr ptrdiff_t kPiece = 4096;  // the most bytes in one step; each may need room for the longest escape
  out += '"';
  const char *at = text.data(), *const end = at + text.size();
  while (at != end) {
    const char* stop = at + std::min(kPiece, end - at);
    const size_t size = out.size();
    out.resize(size + room_escaped(static_cast<size_t>(stop - at)));
    const auto [next, to] = escaped(at, stop, end, out.data() + size, controls);
    out.resize(static_cast<size_t>(to - out.data()));
    at = next;
  }
  out += '"';
}

namespace {

bool is_json_number(std::string_view word) {
  size_t at = 0;
  auto digits = [&] {
    const size_t from = at;
    while (at < word.size() && word[at] >= '0' && word[at] <= '9') ++at;
    return at - from;
  };
  if (at < word.size() && word[at] == '-') ++at;
  const size_t first = at, whole_digits = digits();
  if (whole_digits == 0 || (whole_digits > 1 && word[first] == '0')) return false;
  if (at < word.size() && word[at] == '.') {
    ++at;
    if (digits() == 0) return false;
  }
  if (at < word.size() && (word[at] == 'e' || word[at] == 'E')) {
    ++at;
    if (at < word.size() && (word[at] == '+' || word[at] == '-')) ++at;
    if (digits() == 0) return false;
  }
  return at == word.size();
}

}  // namespace

void Json::copy_scalar(char first, std::string& out) {
  if (first == '"') {
    const String quoted = string();
    if (quoted.plain) {
      out.append(quoted.raw.data() - 1, quoted.raw.size() + 2);
    } else {
      std::string room;
      quote(text(quoted, room), out);
    }
    return;
  }
  const std::string_view scalar = word();
  if (scalar == "true" || scalar == "false" || scalar == "null" || is_json_number(scalar)) {
    out += scalar;
  } else {
    quote(scalar, out);
  }
}

template <bool kCopy>
void Json::value(std::string* out) {
  // This code is not recursive, because a file may nest any number of brackets. The values of a real trace are not
  // nested deeper than this.
  constexpr size_t kDeepest = 512;
  std::string closers, room;
  bool first = true;
  do {
    if (!closers.empty() && !more(closers.back(), first)) {
      if constexpr (kCopy) *out += closers.back();
      closers.pop_back();
      ++at_;
      first = false;
      continue;
    }
    char next = peek();
    if constexpr (kCopy) {
      if (!closers.empty() && !first) *out += ", ";
    }
    if (!closers.empty() && closers.back() == '}') {
      const String key = string();
      expect(':');
      next = peek();
      if constexpr (kCopy) {
        quote(text(key, room), *out);
        *out += ": ";
      }
    }
    first = false;
    if (next == '{' || next == '[') {
      if (closers.size() == kDeepest) throw Bad();
      closers += next == '{' ? '}' : ']';
      if constexpr (kCopy) *out += next;
      ++at_;
      first = true;
    } else if constexpr (kCopy) {
      copy_scalar(next, *out);
    } else if (next == '"') {
      string();
    } else {
      word();
    }
  } while (!closers.empty());
}

void Json::skip_value() { value<false>(nullptr); }

void Json::copy_value(std::string& out) {
  const char next = peek();
  if (next == '{' || next == '[') {
    value<true>(&out);
  } else {
    copy_scalar(next, out);
  }
}

}  // namespace opspan::columns
