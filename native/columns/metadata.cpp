// Reads fields of a label from texts of many formats: seq=3, seq: 3, "seq": [3], 'sizes': '[[2, 3]]', ...
//
// A field is a name, then : or =, then a value. The character before the name must not be a letter, digit or
// underscore. Spaces, a quote or a bracket may surround the name and the value. If a text has a field more than once,
// the first one counts. Bytes that are not ASCII count as letters. Texts have few : and =, so names are looked for in
// front of these characters, all in one pass.

#include "columns/columns.h"
#include "columns/interface.h"
#include "columns/parallel.h"

namespace opspan::columns {
namespace {

bool is_space(char letter) { return letter == ' ' || (letter >= '\t' && letter <= '\r'); }
bool is_digit(char letter) { return letter >= '0' && letter <= '9'; }
bool is_letter(char letter) {
  const auto small = static_cast<uint8_t>(letter | 0x20);
  return is_digit(letter) || (small >= 'a' && small <= 'z') || letter == '_' || static_cast<uint8_t>(letter) >= 0x80;
}
bool is_list(char letter) {
  return is_digit(letter) || letter == '[' || letter == ']' || letter == ',' || letter == ' ';
}

// The text after a field's separator.
class Value {
 public:
  explicit Value(std::string_view text) : text_(text) { skip_space(); }

  std::optional<int64_t> number() {
    constexpr size_t kDigits = 18;
    skip_one_of("\"'[");
    skip_space();
    const std::string_view digits = text_.substr(0, std::min(kDigits, span(is_digit)));
    if (digits.empty()) return {};
    int64_t value = 0;
    for (const char digit : digits) value = value * 10 + (digit - '0');
    return value;
  }
  std::optional<std::string_view> lists() {
    skip_one_of("\"'");
    if (!text_.starts_with('[')) return {};
    const std::string_view value = text_.substr(0, span(is_list));
    const size_t closed = value.rfind(']');
    if (closed == std::string_view::npos) return {};
    return value.substr(0, closed + 1);
  }

 private:
  size_t span(bool (*is_in)(char)) const {
    size_t size = 0;
    while (size < text_.size() && is_in(text_[size])) ++size;
    return size;
  }
  void skip_space() { text_.remove_prefix(span(is_space)); }
  void skip_one_of(std::string_view letters) {
    if (!text_.empty() && letters.find(text_[0]) != std::string_view::npos) text_.remove_prefix(1);
  }
  std::string_view text_;
};

struct LabelFields {
  std::optional<int64_t> seq, op_id, forward_tid;
  std::optional<std::string_view> sizes;

  explicit LabelFields(std::string_view text) {
    size_t colon = text.find(':'), equals = text.find('=');
    while (colon != equals) {  // `colon` and `equals` are equal only if both are npos
      const size_t at = std::min(colon, equals);
      size_t& next = at == colon ? colon : equals;
      next = text.find(text[at], at + 1);
      take(before(text.substr(0, at)), text.substr(at + 1));
    }
  }

 private:
  // Returns the text before a separator, without spaces and a quote at its end. If a field has its name there, the text
  // now ends with the name.
  static std::string_view before(std::string_view text) {
    while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
    if (text.ends_with('"') || text.ends_with('\'')) text.remove_suffix(1);
    return text;
  }
  static bool ends_with(std::string_view text, std::string_view name) {
    return text.ends_with(name) && (text.size() == name.size() || !is_letter(text[text.size() - name.size() - 1]));
  }
  void take(std::string_view head, std::string_view rest) {
    if (!seq && ends_with(head, "seq")) {
      seq = Value(rest).number();
    } else if (!op_id && ends_with(head, "op_id")) {
      op_id = Value(rest).number();
    } else if (!forward_tid && ends_with(head, "fwd_tid")) {
      forward_tid = Value(rest).number();
    } else if (!sizes && ends_with(head, "sizes")) {
      sizes = Value(rest).lists();
    }
  }
};

struct Part : Rows {
  Dictionary sizes;
};

}  // namespace

Output metadata(const Input& frame, int64_t workers) {
  const size_t rows = frame.rows();
  const Texts texts = frame.texts("text");
  Numbers seq(rows), op_id(rows), forward_tid(rows);
  Codes sizes(rows);
  auto parts = parts_of<Part>(rows, workers);
  run_parallel(parts.size(), [&](size_t n) {
    Part& part = parts[n];
    for (size_t row = part.from; row < part.to; ++row) {
      const LabelFields fields(texts.null(row) ? std::string_view() : texts[row]);
      seq.set(row, fields.seq);
      op_id.set(row, fields.op_id);
      forward_tid.set(row, fields.forward_tid);
      sizes.codes[row] = fields.sizes ? part.sizes.code(*fields.sizes) : kNone;
    }
  });
  Output out(rows);
  auto distinct = join(parts, &Part::sizes, sizes);
  out.add("seq", std::move(seq.values), &seq.valid);
  out.add("op_id", std::move(op_id.values), &op_id.valid);
  out.add("forward_tid", std::move(forward_tid.values), &forward_tid.valid);
  out.add("sizes", std::move(sizes.codes), std::move(distinct));
  return out;
}

}  // namespace opspan::columns
