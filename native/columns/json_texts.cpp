// Decodes JSON strings: escapes, and bytes that are not UTF-8.

#include <charconv>

#include "columns/json.h"

namespace opspan::columns {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";

void append_code_point(uint32_t code, std::string& out) {
  if (code >= 0xd800 && code < 0xe000) {
    out += kReplacement;  // only half of a surrogate pair
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

// Returns how many bytes at the beginning of `text` are one character of UTF-8; 0: they are not UTF-8.
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

// Appends the escape at the beginning of `text`, which is a backslash and at least one more byte. Returns its length.
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
      return 1;  // JSON has no such escape: the backslash is kept
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

}  // namespace opspan::columns
