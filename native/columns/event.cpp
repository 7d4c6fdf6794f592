#include "columns/event.h"

#include <charconv>

namespace opspan::columns {

namespace {

ValueKind kind_of_key(std::string_view key) {
  constexpr std::pair<std::string_view, ValueKind> kKeys[] = {
      {"ph", ValueKind::kPhase},     {"cat", ValueKind::kCategory}, {"name", ValueKind::kName},
      {"pid", ValueKind::kPid},      {"tid", ValueKind::kTid},      {"ts", ValueKind::kTime},
      {"dur", ValueKind::kDuration}, {"args", ValueKind::kArgs},    {"id", ValueKind::kId},
  };
  for (const auto& [name, kind] : kKeys) {
    if (key == name) return kind;
  }
  return ValueKind::kOther;
}

}  // namespace

void EventColumns::read(Json& json, size_t row) {
  in_args_ = false;
  json.expect('{');
  Slot* slot = next(json, begin_, true);
  for (; slot->kind != ValueKind::kEnd; slot = next(json, *slot, false)) {
    if (slot->kind == ValueKind::kArgs) {
      args(json, slot, row);
    } else {
      value(json, *slot, row);
    }
  }
}

// Returns the slot after `before`: the slot of the next value, which is not read yet, or the slot of the object's end.
Slot* EventColumns::next(Json& json, Slot& before, bool is_first) {
  if (Slot* slot = Slots::follow(json, before)) return slot;
  const size_t from = json.offset();
  if (!json.more('}', is_first)) {
    json.take();
    Slot& end = slots_.add(before, json.since(from));
    end.kind = ValueKind::kEnd;
    return &end;
  }
  const Json::String key = json.string();
  json.expect(':');
  const bool is_object = json.peek() == '{';
  const ValueKind kind = in_args_ ? ValueKind::kRest : kind_of_key(key.raw);
  // The opening brace becomes part of the slot's lead, so that the slot matches only if the args are an object.
  if (kind == ValueKind::kArgs && is_object) json.take();
  if (kind == ValueKind::kArgs && !is_object) return &slots_.discarded();
  Slot& slot = slots_.add(before, json.since(from));
  slot.kind = kind;
  if (!in_args_) return &slot;
  quote(Json::text(key, room_), slot.key);
  slot.key += ": ";
  if (const auto arg = by_key_.find(key.raw); arg != by_key_.end()) {
    slot.kind = ValueKind::kArg;
    slot.arg = arg->second;
  }
  return &slot;
}

void EventColumns::value(Json& json, Slot& slot, size_t row) {
  switch (slot.kind) {
    case ValueKind::kPhase:
      return text(json, slot, phase_, row);
    case ValueKind::kCategory:
      return category(json, slot, row);
    case ValueKind::kName:
      return text(json, slot, name_, row);
    case ValueKind::kPid:
      return number_or_text(json, slot, pid_, pid_text_, row);
    case ValueKind::kTid:
      return number_or_text(json, slot, tid_, tid_text_, row);
    case ValueKind::kTime:
      return ts_.set(row, time(json, row));
    case ValueKind::kDuration:
      return dur_.set(row, time(json, row));
    case ValueKind::kId:
      return id_.set(row, integer_value(json, row));
    default:
      json.skip_value();
  }
}

// Reads the args. `slot` is first the slot of the args, and in the end the slot of their closing brace.
void EventColumns::args(Json& json, Slot*& slot, size_t row) {
  args_from_ = json.offset() - 1;
  in_args_ = true;
  rest_text_.assign(1, '{');
  slot = next(json, *slot, true);
  for (; slot->kind != ValueKind::kEnd; slot = next(json, *slot, false)) {
    if (slot->kind == ValueKind::kArg) {
      arg(json, *slot, row);
    } else {
      rest(json, *slot);
    }
  }
  rest_text_ += '}';
  if (rest_text_.size() > 2) rest_.set(row, rest_text_);
  in_args_ = false;
}

void EventColumns::rest(Json& json, const Slot& slot) {
  if (rest_text_.size() > 1) rest_text_ += ", ";
  rest_text_ += slot.key;
  json.copy_value(rest_text_);
}

void EventColumns::arg(Json& json, Slot& slot, size_t row) {
  Arg& arg = args_[slot.arg];
  if (arg.type == kInteger) {
    arg.numbers->set(row, integer_value(json, row));
  } else if (arg.type == kOne) {
    single_integer(json, slot, row);
  } else if (arg.type == kReal) {
    if (const auto value = number(json, real, row)) {
      arg.reals[row] = *value;
      arg.valid->set(row);
    }
  } else if (arg.texts && json.peek() == '"') {
    text(json, slot, *arg.texts, row);
  } else if (arg.texts) {
    list(json, *arg.texts, row);
  } else {
    value_text_.clear();
    json.copy_value(value_text_);
    if (value_text_ != "null") arg.views->set(row, value_text_);
  }
}

// Reads an integer, or a list with only an integer in it. Any other value goes to the args that have no column.
void EventColumns::single_integer(Json& json, const Slot& slot, size_t row) {
  const size_t from = json.offset();
  const bool is_list = json.take("[");
  auto result = json.plain_number<0>();
  if (is_list && result && !json.take("]")) result = {};
  if (!result) {
    json.go_to(from);
    value_text_.clear();
    json.copy_value(value_text_);
    if (value_text_ == "null") return;
    std::string_view digits = value_text_;
    digits.remove_prefix(std::min(digits.find_first_not_of("[] \""), digits.size()));
    digits = digits.substr(0, digits.find_last_not_of("[] \"") + 1);
    int64_t value = 0;
    const auto [end, failed] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (failed == std::errc() && end == digits.data() + digits.size()) result = value;
  }
  if (result) return args_[slot.arg].numbers->set(row, result);
  if (rest_text_.size() > 1) rest_text_ += ", ";
  rest_text_ += slot.key;
  rest_text_ += value_text_;
}

// Sets the category. If the text begins with a known category and an underscore, the known category is set. The rest of
// the text is then only a number, which would make a new text for almost every event.
void EventColumns::category(Json& json, Slot& slot, size_t row) {
  const size_t from = json.offset();
  if (!categories_.empty() && json.peek() == '"') {
    const std::string_view text = json.string().raw;
    for (const std::string_view prefix : categories_) {
      const bool has_prefix = text.starts_with(prefix) && text.substr(prefix.size()).starts_with('_');
      if (has_prefix) return category_.set(row, category_.words.own(prefix));
    }
    json.go_to(from);
  }
  text(json, slot, category_, row);
}

// Reads a list. A list that was read before is recognised by its bytes in the file.
void EventColumns::list(Json& json, TextColumn& column, size_t row) {
  const size_t from = json.offset();
  const auto bytes = json.balanced_list();
  uint32_t* code_of_list = nullptr;
  if (bytes) {
    const uint32_t at = column.lists.code(*bytes);
    if (at == column.codes_of_lists.size()) column.codes_of_lists.push_back(kNone);
    code_of_list = &column.codes_of_lists[at];
    if (*code_of_list != kNone) return column.set(row, *code_of_list);
    json.go_to(from);
  }
  value_text_.clear();
  json.copy_value(value_text_);
  if (value_text_ == "null") return;
  const uint32_t code = column.words.own(value_text_);
  if (bytes && json.since(from) == *bytes) *code_of_list = code;  // the bytes are a complete list
  column.set(row, code);
}

void EventColumns::text(Json& json, Slot& slot, TextColumn& column, size_t row) {
  if (!slot.last.empty() && json.take(slot.last)) return column.set(row, slot.code);
  if (json.peek() != '"') {
    is_odd_.set(row);
    return json.skip_value();
  }
  const size_t from = json.offset();
  const Json::String string = json.string();
  slot.code = column.words.code(string);
  slot.last = json.since(from);
  column.set(row, slot.code);
}

// Reads a number, or a string that holds one. null leaves the cell empty. If the value is anything else, the row is
// marked as odd (is_odd_).
template <class Reading>
auto EventColumns::number(Json& json, Reading reading, size_t row) -> decltype(reading({})) {
  const char first = json.peek();
  if (first == '{' || first == '[') {
    json.skip_value();
    is_odd_.set(row);
    return {};
  }
  const std::string_view word = first == '"' ? json.string().raw : json.word();
  const auto result = reading(word);
  if (!result && word != "null") is_odd_.set(row);
  return result;
}

std::optional<int64_t> EventColumns::integer_value(Json& json, size_t row) {
  const auto plain = json.plain_number<0>();
  return plain ? plain : number(json, integer, row);
}

std::optional<int64_t> EventColumns::time(Json& json, size_t row) {
  const auto plain = json.plain_number<3>();
  return plain ? plain : number(json, thousandfold, row);
}

void EventColumns::number_or_text(Json& json, Slot& slot, Numbers& numbers, TextColumn& texts, size_t row) {
  if (json.peek() != '"') return numbers.set(row, integer_value(json, row));
  const size_t from = json.offset();
  const Json::String string = json.string();
  if (const auto number = integer(string.raw)) {
    numbers.set(row, number);
  } else {
    json.go_to(from);
    text(json, slot, texts, row);
  }
}

}  // namespace opspan::columns
