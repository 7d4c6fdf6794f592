// Reads the JSON of traces in place, without building a tree of values. It reads every text that Chrome's viewer would
// still open.
//
// So it accepts escapes that JSON does not know, control characters and bytes that are not UTF-8 in strings, NaN and
// Infinity, and an extra comma. The results are always valid: texts are UTF-8, and values are JSON.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

namespace opspan::columns {

struct Cut {};  // thrown if the bytes end within a value
struct Bad {};  // thrown if a value is not JSON

inline bool is_word(char byte) {  // true for a character of a number or of true, false, null, NaN
  return (byte >= '0' && byte <= '9') || (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || byte == '-' ||
         byte == '+' || byte == '.';
}

class Json {
 public:
  explicit Json(std::string_view bytes) : begin_(bytes.data()), at_(begin_), end_(begin_ + bytes.size()) {}

  size_t offset() const { return static_cast<size_t>(at_ - begin_); }
  void go_to(size_t offset) { at_ = begin_ + offset; }

  // Returns the next character that is not white space, without taking it. Throws at the end of the bytes.
  char peek() {
    while (at_ != end_ && (*at_ == ' ' || *at_ == '\n' || *at_ == '\r' || *at_ == '\t')) ++at_;
    if (at_ == end_) throw Cut();
    return *at_;
  }
  char peek_item() {
    while (peek() == ',') ++at_;
    return *at_;
  }
  void take() { ++at_; }
  // Takes these bytes and returns true if they come next. Otherwise returns false.
  bool take(std::string_view bytes) {
    if (static_cast<size_t>(end_ - at_) < bytes.size() || std::memcmp(at_, bytes.data(), bytes.size()) != 0)
      return false;
    at_ += bytes.size();
    return true;
  }
  // Returns the bytes from `offset` to the current position.
  std::string_view since(size_t offset) const { return {begin_ + offset, static_cast<size_t>(at_ - begin_) - offset}; }
  // Returns whether a list or object has another item, and if so, takes the comma before the item. Otherwise the
  // closing bracket comes next.
  bool more(char closer, bool is_first) {
    char next = peek();
    if (!is_first && next != ',' && next != closer) throw Bad();
    while (next == ',') {
      ++at_;
      next = peek();
    }
    return next != closer;
  }
  void expect(char wanted) {
    if (peek() != wanted) throw Bad();
    ++at_;
  }

  struct String {
    std::string_view raw;  // the bytes between the quotes
    bool plain;            // true if `raw` is the text itself: only printable ASCII, and no escapes
  };
  String string();
  // Returns the text of a string. If the string is plain, the text is its bytes in the file; otherwise the text is
  // written to `room`.
  static std::string_view text(const String& string, std::string& room);
  // Takes a number, true, false, null or NaN, and returns its bytes.
  std::string_view word();
  // Takes a number with at most kDecimals decimals and returns it times 10^kDecimals. Takes nothing if the number has
  // an exponent or is too long.
  template <int kDecimals>
  std::optional<int64_t> plain_number();
  // Takes a list if its brackets and strings end as in a valid list; otherwise takes nothing.
  std::optional<std::string_view> balanced_list();
  void skip_value();
  // Appends a value of any kind to `out`, on one line: "[1, {"a": 2}]".
  void copy_value(std::string& out);

 private:
  template <bool kCopy>
  void value(std::string* out);
  void copy_scalar(char first, std::string& out);

  const char *begin_, *at_, *end_;
};

// Appends text to `out` as a JSON string. Control characters are escaped by number (such as \u000a) or, with kShort, by
// their short form (such as \n) if they have one.
enum class Controls : uint8_t { kByNumber, kShort };
void quote(std::string_view text, std::string& out, Controls controls = Controls::kByNumber);
// Writes the same text as quote(), but without quotes, to memory of at least room_escaped(bytes) bytes.
char* escape(std::string_view text, char* to, Controls controls);
inline size_t room_escaped(size_t bytes) { return 6 * (bytes + 8); }

// Returns a decimal number times 1000, rounded to the nearest integer; or nothing if the word is not a number, or not
// within +-2^62.
std::optional<int64_t> thousandfold(std::string_view word);
// Returns the integer that a word stands for: 12, 12.0, 1.2e1 and 0xc are 12.
std::optional<int64_t> integer(std::string_view word);
std::optional<double> real(std::string_view word);

}  // namespace opspan::columns
