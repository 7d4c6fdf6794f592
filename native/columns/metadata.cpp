// Fields of a label in texts of any making: seq=3, seq: 3, "seq": [3], 'sizes': '[[2, 3]]', ...
//
// A field is a name that no letter, digit or underline stands before, then : or =, then its value; spaces, and a quote
// or bracket, may stand around those. The first such place in a text counts. What is not ASCII is taken for a letter.

#include <cctype>
#include <cstring>

#include "columns/columns.h"
#include "columns/interface.h"
#include "columns/together.h"

namespace opspan::columns {
namespace {

class FieldSearch {
 public:
  FieldSearch(std::string_view text, std::string_view name) : text_(text), name_(name) {}

  // Goes behind the colon of the next place that may be the field's; false: there is none.
  bool next() {
    while (const void* found = memmem(text_.data() + from_, text_.size() - from_, name_.data(), name_.size())) {
      const auto at = static_cast<size_t>(static_cast<const char*>(found) - text_.data());
      from_ = at_ = at + name_.size();
      if (at > 0 && is_word(text_[at - 1])) continue;
      skip_one_of("\"'");
      skip_space();
      if (!skip_one_of(":=")) continue;
      skip_space();
      return true;
    }
    return false;
  }

  std::optional<int64_t> number() {
    constexpr size_t kDigits = 18;
    while (next()) {
      skip_one_of("\"'[");
      skip_space();
      const size_t digits = std::min(kDigits, span("0123456789"));
      if (digits == 0) continue;
      int64_t value = 0;
      for (const char digit : text_.substr(at_, digits)) value = value * 10 + (digit - '0');
      return value;
    }
    return {};
  }

  std::optional<std::string_view> lists() {
    while (next()) {
      skip_one_of("\"'");
      if (at_ == text_.size() || text_[at_] != '[') continue;
      const std::string_view value = text_.substr(at_, span("[], 0123456789"));
      if (const size_t closed = value.rfind(']'); closed != std::string_view::npos) return value.substr(0, closed + 1);
    }
    return {};
  }

 private:
  static bool is_word(char letter) {
    const auto byte = static_cast<uint8_t>(letter);
    return byte >= 0x80 || std::isalnum(byte) != 0 || letter == '_';
  }
  size_t span(const char* letters) const {
    const size_t end = text_.find_first_not_of(letters, at_);
    return (end == std::string_view::npos ? text_.size() : end) - at_;
  }
  void skip_space() { at_ += span(" \t\n\v\f\r"); }
  bool skip_one_of(std::string_view letters) {
    const bool found = at_ < text_.size() && letters.find(text_[at_]) != std::string_view::npos;
    at_ += found ? 1 : 0;
    return found;
  }

  std::string_view text_, name_;
  size_t from_ = 0, at_ = 0;  // where to look for the name again; what is read next
};

}  // namespace

Output metadata(const Input& frame, int64_t workers) {
  const size_t rows = frame.rows();
  const Texts texts = frame.texts("text");
  Numbers seq(rows), op_id(rows), forward_tid(rows);
  Views sizes(rows);
  const auto blocks = std::make_shared<Blocks>();
  const size_t each = (rows / static_cast<size_t>(std::max<int64_t>(1, workers)) + 64) & ~size_t{63};
  together((rows + each - 1) / each, [&](size_t part) {  // no two write bits of one byte
    Copies copies(blocks);
    for (size_t row = part * each; row < std::min(rows, (part + 1) * each); ++row) {
      if (texts.null(row)) continue;
      const std::string_view text = texts[row];
      seq.set(row, FieldSearch(text, "seq").number());
      op_id.set(row, FieldSearch(text, "op_id").number());
      forward_tid.set(row, FieldSearch(text, "fwd_tid").number());
      if (const auto found = FieldSearch(text, "sizes").lists()) sizes.set(row, view_of(copies.add(*found)));
    }
  });
  Output out(rows);
  out.add("seq", std::move(seq.values), &seq.valid);
  out.add("op_id", std::move(op_id.values), &op_id.valid);
  out.add("forward_tid", std::move(forward_tid.values), &forward_tid.valid);
  out.add("sizes", std::move(sizes.views), &sizes.valid, blocks);
  return out;
}

}  // namespace opspan::columns
