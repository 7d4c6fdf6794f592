#include "columns/grammar.h"

#include <cstring>

namespace opspan::columns {
namespace {

bool digit(char c) { return c >= '0' && c <= '9'; }

// A position in a text. A function that reads something moves the position behind it. If the text there does not fit,
// the function returns false; the caller then gives up or tries another position.
struct Cursor {
  const char* at;
  const char* end;

  bool done() const { return at == end; }
  bool ahead(std::string_view text) const {
    return static_cast<size_t>(end - at) >= text.size() && std::memcmp(at, text.data(), text.size()) == 0;
  }
  bool skip(std::string_view text) {
    if (!ahead(text)) return false;
    at += text.size();
    return true;
  }
  bool skip(char c) {
    if (at == end || *at != c) return false;
    ++at;
    return true;
  }
  bool digits() {
    const char* past = at;  // a local copy is faster, as characters may alias `at`
    while (past != end && digit(*past)) ++past;
    const bool any = past != at;
    at = past;
    return any;
  }
  bool integer() {
    skip('-');
    return digits();
  }
};

// A number of 18 digits fits into 64 bits, signed or unsigned. Torch writes no longer numbers.
constexpr int kMostDigits = 18;

bool number(Cursor& text, std::optional<int64_t>& value) {
  const char *from = text.at, *past = from;
  int64_t sum = 0;
  for (; past != text.end && digit(*past); ++past) {
    if (past - from == kMostDigits) return false;
    sum = sum * 10 + (*past - '0');
  }
  text.at = past;
  if (past == from) return false;
  value = sum;
  return true;
}

bool integers(Cursor& text) {
  do {
    if (!text.integer()) return false;
  } while (text.skip(", "));
  return true;
}

bool tensor(Cursor& text) {
  if (!text.skip('[')) return false;
  return text.skip(']') || (integers(text) && text.skip(']'));
}

template <class Item>
bool list(Cursor& text, Item item) {
  if (!text.skip('[')) return false;
  if (text.skip(']')) return true;
  do {
    if (!item(text)) return false;
  } while (text.skip(", "));
  return text.skip(']');
}

// Reads one input: a tensor, or a list of tensors.
bool input(Cursor& text) { return text.ahead("[[") ? list(text, tensor) : tensor(text); }

bool edge(Cursor& text) {
  return text.skip('(') && text.digits() && text.skip(',') && text.integer() && text.skip(')');
}

std::string_view between(const char* from, const char* to) { return {from, static_cast<size_t>(to - from)}; }

// Reads the last two fields. Nothing may follow them.
bool tail(Cursor text, Label& label) {
  if (text.skip(", sizes = ")) {
    const char* from = text.at;
    if (!list(text, input)) return false;
    label.sizes = between(from, text.at);
  }
  if (text.skip(", input_op_ids = ")) {
    const char* from = text.at;
    if (!list(text, edge)) return false;
    label.input_op_ids = between(from, text.at);
  }
  return text.done();
}

// Reads the arguments, which are free text. They end at the first position from which tail() can read the rest.
void arguments(Cursor text, Label& label) {
  const char* from = text.at;
  for (;; ++text.at) {
    const size_t left = static_cast<size_t>(text.end - text.at);
    const void* comma = left == 0 ? nullptr : std::memchr(text.at, ',', left);
    text.at = comma != nullptr ? static_cast<const char*>(comma) : text.end;
    label.sizes.reset();
    label.input_op_ids.reset();
    if (tail(text, label)) break;
  }
  label.args = between(from, text.at);
}

bool sequence(Cursor& text, Label& label) {
  Cursor ahead = text;
  if (!ahead.skip(", ")) return true;
  ahead.skip("stashed ");
  if (!ahead.skip("seq")) return true;
  ahead.skip(' ');
  if (!ahead.skip('=')) return false;
  ahead.skip(' ');
  text = ahead;
  return number(text, label.seq);
}

// Reads all of the text as fields, in their order. Returns false if the text has anything else.
bool fields(Cursor text, Label& label) {
  if (!sequence(text, label)) return false;
  if (text.skip(", op_id = ") && !number(text, label.op_id)) return false;
  if (text.skip(", fwd_tid = ") && !number(text, label.forward_tid)) return false;
  if (text.skip(", class = ")) {
    const char* from = text.at;
    while (!text.done() && *text.at != ' ' && *text.at != ',') ++text.at;
    if (text.at == from) return false;
    label.class_name = between(from, text.at);
  }
  if (text.skip(", args = ")) {
    arguments(text, label);
    return true;
  }
  return tail(text, label);
}

bool may_begin_field(const char* comma, const char* end) {
  if (end - comma < 3 || comma[1] != ' ') return false;
  return std::memchr("socafi", comma[2], 6) != nullptr;
}

}  // namespace

// The name ends at the first comma from which all of the text can be read as fields. The time is linear for any text:
// an attempt reads each field at most once, and no part of the text is read in more attempts than there are fields.
Label parse_label(std::string_view text) {
  // Only this variable is returned, so the compiler makes it in the caller's memory. A copy would cost more than
  // reading a label does.
  Label label;
  const char* const end = text.data() + text.size();
  const char* at = text.data();
  while (at != end) {
    const void* comma = std::memchr(at, ',', static_cast<size_t>(end - at));
    if (comma == nullptr) break;
    at = static_cast<const char*>(comma);
    if (may_begin_field(at, end)) {
      if (fields({at, end}, label)) {
        label.name = between(text.data(), at);
        return label;
      }
      label = Label();
    }
    ++at;
  }
  label.name = text;
  return label;
}

namespace {

// The kinds that a name can tell, with the numbers of opspan.labels.Kind.
enum Kind : uint8_t { kOp = 1, kBackward = 2, kEngine = 3, kUser = 4, kStep = 6 };

size_t trailing_digits(std::string_view name) {
  size_t count = 0;
  while (count < name.size() && digit(name[name.size() - 1 - count])) ++count;
  return count;
}

bool is_backward_stem(std::string_view stem) {
  constexpr std::string_view kEnd = "Backward";
  return stem.size() > kEnd.size() && stem.ends_with(kEnd) && stem.find(' ') == std::string_view::npos;
}

bool is_op(std::string_view name) {
  if (name == "detach" || name == "detach_") return true;  // torch records these itself inside aten::detach
  auto lower = [](char c) { return (c >= 'a' && c <= 'z') || c == '_'; };
  auto upper = [](char c) { return c >= 'A' && c <= 'Z'; };
  if (name.empty() || !lower(name[0])) return false;
  size_t at = 1;
  while (at < name.size() && (lower(name[at]) || digit(name[at]))) ++at;
  if (name.substr(at, 2) != "::" || at + 2 == name.size()) return false;
  for (char c : name.substr(at + 2)) {
    if (!lower(c) && !upper(c) && !digit(c) && c != '.') return false;
  }
  return true;
}

}  // namespace

uint8_t kind_of(std::string_view name, bool has_seq) {
  if (name.starts_with("autograd::engine::evaluate_function")) return kEngine;
  if (name.starts_with("torch::autograd::") || name.starts_with("N5torch8autograd")) return kBackward;
  const size_t digits = trailing_digits(name);
  if (digits > 0 && is_backward_stem(name.substr(0, name.size() - digits))) return kBackward;
  if (has_seq) return is_backward_stem(name) ? kBackward : kOp;
  if (is_op(name)) return kOp;
  constexpr std::string_view kStepName = "ProfilerStep#";
  return name.starts_with(kStepName) && digits > 0 && digits == name.size() - kStepName.size() ? kStep : kUser;
}

}  // namespace opspan::columns
