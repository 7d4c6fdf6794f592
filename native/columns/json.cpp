#include "columns/json.h"

#include <array>
#include <charconv>

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

// The first byte that is not plain, eight at a time.
const char* behind_plain(const char* at, const char* end) {
  constexpr uint64_t kOnes = 0x0101010101010101u, kTops = kOnes << 7;
  // A byte that is below one that is found may be taken for one as well: the lowest is right.
  auto zeros = [](uint64_t word) { return (word - kOnes) & ~word & kTops; };
  for (; end - at >= 8; at += 8) {
    const auto word = loaded<uint64_t>(at);
    const uint64_t controls = (word - kOnes * 0x20) & ~word;
    const uint64_t odd = ((word | controls) & kTops) | zeros(word ^ (kOnes * '"')) | zeros(word ^ (kOnes * '\\')) |
                         zeros(word ^ (kOnes * 0x7f));
    if (odd != 0) return at + std::countr_zero(odd) / 8;
  }
  while (at != end && kind(*at) == kPlain) ++at;
  return at;
}

bool is_word(char byte) {
  return (byte >= '0' && byte <= '9') || (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || byte == '-' ||
         byte == '+' || byte == '.';
}

constexpr std::string_view kReplacement = "\xef\xbf\xbd";

void append_code_point(uint32_t code, std::string& out) {
  if (code >= 0xd800 && code < 0xe000) {
    out += kReplacement;  // half of a pair
  } else if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += {static_cast<char>(0xc0 | code >> 6), static_cast<char>(0x80 | (code & 0x3f))};
  } else if (code < 0x10000) {
    out += {static_cast<char>(0xe0 | code >> 12), static_cast<char>(0x80 | (code >> 6 & 0x3f)),
            static_cast<char>(0x80 | (code & 0x3f))};
  } else {
    out += {static_cast<char>(0xf0 | code >> 18), static_cast<char>(0x80 | (code >> 12 & 0x3f)),
            static_cast<char>(0x80 | (code >> 6 & 0x3f)), static_cast<char>(0x80 | (code & 0x3f))};
  }
}

std::optional<uint32_t> four_digits(std::string_view text) {
  uint32_t code = 0;
  if (text.size() < 4) return {};
  const auto [end, failed] = std::from_chars(text.data(), text.data() + 4, code, 16);
  if (failed != std::errc() || end != text.data() + 4) return {};
  return code;
}

// How many bytes at the beginning of `text` are one character of UTF-8; 0: they are none.
size_t utf8_length(std::string_view text) {
  auto byte = [&](size_t at) { return at < text.size() ? static_cast<uint8_t>(text[at]) : uint8_t{0}; };
  auto follows = [&](size_t at) { return (byte(at) & 0xc0) == 0x80; };
  const uint8_t first = byte(0);
  if (first < 0x80) return 1;
  if (first >= 0xc2 && first < 0xe0) return follows(1) ? 2 : 0;
  if (first >= 0xe0 && first < 0xf0) {
    const bool overlong = first == 0xe0 && byte(1) < 0xa0, surrogate = first == 0xed && byte(1) >= 0xa0;
    return follows(1) && follows(2) && !overlong && !surrogate ? 3 : 0;
  }
  if (first >= 0xf0 && first < 0xf5) {
    const bool overlong = first == 0xf0 && byte(1) < 0x90, past = first == 0xf4 && byte(1) >= 0x90;
    return follows(1) && follows(2) && follows(3) && !overlong && !past ? 4 : 0;
  }
  return 0;
}

// Takes the escape at the beginning of `text`, which is a backslash and at least one more byte; gives its length.
size_t append_escape(std::string_view text, std::string& out) {
  switch (text[1]) {
    case '"':
    case '\\':
    case '/':
      out += text[1];
      return 2;
    case 'b':
      out += '\b';
      return 2;
    case 'f':
      out += '\f';
      return 2;
    case 'n':
      out += '\n';
      return 2;
    case 'r':
      out += '\r';
      return 2;
    case 't':
      out += '\t';
      return 2;
    case 'u':
      break;
    default:
      out += '\\';
      return 1;  // none that JSON knows: the backslash was meant
  }
  const auto code = four_digits(text.substr(2));
  if (!code) {
    out += '\\';
    return 1;
  }
  if (*code >= 0xd800 && *code < 0xdc00 && text.size() >= 12 && text[6] == '\\' && text[7] == 'u') {
    const auto low = four_digits(text.substr(8));
    if (low && *low >= 0xdc00 && *low < 0xe000) {
      append_code_point(0x10000 + ((*code - 0xd800) << 10) + (*low - 0xdc00), out);
      return 12;
    }
  }
  append_code_point(*code, out);
  return 6;
}

}  // namespace

Json::String Json::string() {
  expect('"');
  const char* from = at_;
  bool plain = true;
  while (true) {
    at_ = behind_plain(at_, end_);
    if (at_ == end_) throw Cut();
    const uint8_t found = kind(*at_++);
    if (found == kQuote) return {{from, static_cast<size_t>(at_ - 1 - from)}, plain};
    plain = false;
    if (found != kEscape) continue;
    if (at_ == end_) throw Cut();
    ++at_;
  }
}

std::string_view Json::text(const String& string, std::string& room) {
  if (string.plain) return string.raw;
  room.clear();
  for (size_t at = 0; at < string.raw.size();) {
    const std::string_view rest = string.raw.substr(at);
    if (rest[0] == '\\' && rest.size() > 1) {
      at += append_escape(rest, room);
    } else if (const size_t length = utf8_length(rest); length > 0) {
      room += rest.substr(0, length);
      at += length;
    } else {
      room += kReplacement;
      ++at;
    }
  }
  return room;
}

std::string_view Json::word() {
  peek();
  const char* from = at_;
  while (at_ != end_ && is_word(*at_)) ++at_;
  if (at_ == end_) throw Cut();  // it may go on
  if (at_ == from) throw Bad();
  return {from, static_cast<size_t>(at_ - from)};
}

void quote(std::string_view text, std::string& out, Controls controls) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  constexpr std::string_view kControls = "\b\t\n\f\r", kShort = "btnfr";
  // Letters that are line ends to JavaScript: a viewer's page may hold the text as a script.
  constexpr std::string_view kLineEnd = "\xe2\x80\xa8", kParagraphEnd = "\xe2\x80\xa9";
  out += '"';
  size_t from = 0;  // of what stands as it is and is not written yet
  auto escape = [&](size_t at, size_t length, std::initializer_list<char> escaped) {
    out += text.substr(from, at - from);
    out += escaped;
    from = at + length;
  };
  const char* const end = text.data() + text.size();
  auto next = [&](size_t at) { return static_cast<size_t>(behind_plain(text.data() + at, end) - text.data()); };
  for (size_t at = next(0); at < text.size(); at = next(at + 1)) {
    const auto byte = static_cast<uint8_t>(text[at]);
    if (byte == '"' || byte == '\\') {
      escape(at, 1, {'\\', text[at]});
    } else if (const size_t place = kControls.find(text[at]);
               controls == Controls::kShort && place != std::string_view::npos) {
      escape(at, 1, {'\\', kShort[place]});
    } else if (byte < 0x20 || byte == 0x7f) {
      escape(at, 1, {'\\', 'u', '0', '0', kDigits[byte >> 4], kDigits[byte & 15]});
    } else if (const std::string_view letter = text.substr(at, 3); letter == kLineEnd || letter == kParagraphEnd) {
      escape(at, 3, {'\\', 'u', '2', '0', '2', letter == kLineEnd ? '8' : '9'});
    }
  }
  out += text.substr(from);
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
  const size_t first = at, whole = digits();
  if (whole == 0 || (whole > 1 && word[first] == '0')) return false;
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

template <bool kCopy>
void Json::value(std::string* out) {
  // No recursion: a file may open as many brackets as it likes. Deeper than this is no data of a trace.
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
    } else if (next == '"') {
      const String found = string();
      if constexpr (kCopy) {
        if (found.plain) {
          *out += '"';
          *out += found.raw;
          *out += '"';
        } else {
          quote(text(found, room), *out);
        }
      }
    } else {
      const std::string_view found = word();
      if constexpr (kCopy) {
        if (found == "true" || found == "false" || found == "null" || is_json_number(found)) {
          *out += found;
        } else {
          quote(found, *out);
        }
      }
    }
  } while (!closers.empty());
}

void Json::skip_value() { value<false>(nullptr); }
void Json::copy_value(std::string& out) { value<true>(&out); }

}  // namespace opspan::columns
