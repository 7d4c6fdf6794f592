// Reads a line of the text of `perf script`. The first header in a line counts, because only the name of a thread,
// which has 15 bytes at most, can stand before it.

#include "columns/perf_lines.h"

#include <algorithm>
#include <array>
#include <charconv>

namespace opspan::columns::perf_text {
namespace {

constexpr int64_t kMostSeconds = 4'000'000'000, kSecond = 1'000'000'000;
constexpr std::string_view kUnknown = "[unknown]";

bool is_digit(char byte) { return byte >= '0' && byte <= '9'; }
bool is_hex(char byte) { return is_digit(byte) || (byte >= 'a' && byte <= 'f'); }

// Returns the number that is the whole text; nothing for any other text.
std::optional<int64_t> number(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// Reads a time such as 33329.003761: (seconds, with a colon behind them).
bool read_time(std::string_view word, Header& header) {
  const size_t point = word.find('.');
  if (point == 0 || point > 18 || word.size() < point + 3 || word.size() > point + 11 || word.back() != ':')
    return false;
  const std::string_view whole = word.substr(0, point), part = word.substr(point + 1, word.size() - point - 2);
  if (!std::all_of(whole.begin(), whole.end(), is_digit) || !std::all_of(part.begin(), part.end(), is_digit))
    return false;
  int64_t ns = *number(part);
  for (size_t digits = part.size(); digits < 9; ++digits) ns *= 10;
  const int64_t seconds = *number(whole);
  if (seconds < kMostSeconds) header.time_ns = seconds * kSecond + ns;
  return true;
}

// Reads a thread such as 2186 or 2186/2190. A single number is the thread's.
bool read_thread(std::string_view word, Header& header) {
  const size_t slash = word.find('/');
  header.tid = number(slash == std::string_view::npos ? word : word.substr(slash + 1));
  header.pid = slash == std::string_view::npos ? std::nullopt : number(word.substr(0, slash));
  return header.tid && (header.pid || slash == std::string_view::npos);
}

std::optional<int64_t> read_cpu(std::string_view word) {
  if (word.size() < 3 || word.front() != '[' || word.back() != ']') return std::nullopt;
  return number(word.substr(1, word.size() - 2));
}

class Words {
 public:
  explicit Words(std::string_view line) : line_(line) {}
  std::string_view next() {
    begin_ = std::min(line_.find_first_not_of(' ', end_), line_.size());
    end_ = std::min(line_.find(' ', begin_), line_.size());
    return line_.substr(begin_, end_ - begin_);
  }
  size_t begin() const { return begin_; }
  size_t end() const { return end_; }

 private:
  std::string_view line_;
  size_t begin_ = 0, end_ = 0;
};

// Reads what follows the time: a period, if it is there, and the event.
bool read_event(std::string_view line, size_t from, Header& header) {
  Words words(line.substr(from));
  std::string_view word = words.next();
  header.period = std::nullopt;
  if (!word.empty() && std::all_of(word.begin(), word.end(), is_digit)) {
    header.period = number(word);
    word = words.next();
  }
  const bool is_record = word.starts_with("PERF_RECORD_");
  if (!is_record && (word.size() < 2 || word.back() != ':')) return false;
  header.event = is_record ? word : word.substr(0, word.size() - 1);
  header.rest = line.substr(from).substr(words.end());
  return true;
}

std::string_view without_offset(std::string_view text) {
  size_t at = text.size();
  while (at > 0 && is_hex(text[at - 1])) --at;
  const bool has_offset = at < text.size() && at >= 3 && text.substr(at - 3, 3) == "+0x";
  return has_offset ? text.substr(0, at - 3) : text;
}

// Returns where the last pair of parentheses begins, which may have others inside: (/memfd:x (deleted)).
size_t last_parenthesis(std::string_view text) {
  size_t depth = 0;
  for (size_t at = text.size(); at-- > 0;) {
    if (text[at] == ')') ++depth;
    if (text[at] == '(' && --depth == 0) return at;
  }
  return std::string_view::npos;
}

}  // namespace

std::string_view without_spaces(std::string_view text) {
  const size_t from = text.find_first_not_of(" \t"), to = text.find_last_not_of(" \t\r");
  return from == std::string_view::npos || to == std::string_view::npos ? "" : text.substr(from, to + 1 - from);
}

bool read_header(std::string_view line, Header& header) {
  struct Word {
    std::string_view text;
    size_t begin;
  };
  std::array<Word, 3> last{};  // the last words, the newest one first
  Words words(line);
  for (std::string_view word = words.next(); !word.empty(); word = words.next()) {
    last = {Word{word, words.begin()}, last[0], last[1]};
    if (word.back() != ':' || !is_digit(word.front()) || !read_time(word, header)) continue;
    header.cpu = read_cpu(last[1].text);
    const Word& thread = last[header.cpu ? 2 : 1];
    if (!read_thread(thread.text, header) || !read_event(line, words.end(), header)) {
      header.time_ns = std::nullopt;
      continue;
    }
    header.comm = without_spaces(line.substr(0, thread.begin));
    return true;
  }
  return false;
}

bool read_frame(std::string_view line, Frame& frame) {
  std::string_view text = without_spaces(line);
  size_t digits = 0;
  while (digits < text.size() && is_hex(text[digits])) ++digits;
  if (digits == 0 || digits > 16 || (digits < text.size() && text[digits] != ' ')) return false;
  text = without_spaces(text.substr(digits));
  frame = {};
  if (text.ends_with(')')) {
    const size_t at = last_parenthesis(text);
    if (at != std::string_view::npos && (at == 0 || text[at - 1] == ' ')) {
      frame.library = without_offset(text.substr(at + 1, text.size() - at - 2));
      text = without_spaces(text.substr(0, at));
    }
  }
  frame.function = without_offset(text);
  if (frame.function.empty()) frame.function = kUnknown;
  if (frame.library.empty()) frame.library = kUnknown;
  return true;
}

}  // namespace opspan::columns::perf_text
