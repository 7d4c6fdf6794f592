#include "columns/event.h"

#include <charconv>

namespace opspan::columns {

namespace {

Is what_is(std::string_view key) {
  constexpr std::pair<std::string_view, Is> kKeys[] = {
      {"ph", Is::kPhase}, {"cat", Is::kCategory}, {"name", Is::kName}, {"pid", Is::kPid}, {"tid", Is::kTid},
      {"ts", Is::kTime},  {"dur", Is::kDuration}, {"args", Is::kArgs}, {"id", Is::kId},
  };
  for (const auto& [name, is] : kKeys) {
    if (key == name) return is;
  }
  return Is::kOther;
}

}  // namespace

void EventColumns::read(Json& json, size_t row) {
  in_args_ = false;
  json.expect('{');
  Slot* slot = next(json, begin_, true);
  for (; slot->is != Is::kEnd; slot = next(json, *slot, false)) {
    if (slot->is == Is::kArgs) {
      args(json, slot, row);
    } else {
      value(json, *slot, row);
    }
  }
}

// Returns the slot of what follows the value at `before`: a value that has not begun yet, or the end of the object.
Slot* EventColumns::next(Json& json, Slot& before, bool is_first) {
  if (Slot* found = Slots::follow(json, before)) return found;
  const size_t from = json.offset();
  if (!json.more('}', is_first)) {
    json.take();
    Slot& end = slots_.add(before, json.since(from));
    end.is = Is::kEnd;
    return &end;
  }
  const Json::String key = json.string();
  json.expect(':');
  const bool is_object = json.peek() == '{';
  const Is is = in_args_ ? Is::kRest : what_is(key.raw);
  if (is == Is::kArgs && is_object) json.take();  // with its bracket in the lead, nothing else is taken for args
  if (is == Is::kArgs && !is_object) return &slots_.forgotten();
  Slot& slot = slots_.add(before, json.since(from));
  slot.is = is;
  if (!in_args_) return &slot;
  quote(Json::text(key, room_), slot.key);
  slot.key += ": ";
  if (const auto found = by_key_.find(key.raw); found != by_key_.end()) {
    slot.is = Is::kArg;
    slot.arg = found->second;
  }
  return &slot;
}

void EventColumns::value(Json& json, Slot& slot, size_t row) {
  switch (slot.is) {
    case Is::kPhase:
      return text(json, slot, phase_, row);
    case Is::kCategory:
      return category(json, slot, row);
    case Is::kName:
      return text(json, slot, name_, row);
    case Is::kPid:
      return number_or_text(json, slot, pid_, pid_text_, row);
    case Is::kTid:
      return number_or_text(json, slot, tid_, tid_text_, row);
    case Is::kTime:
      return ts_.set(row, time(json, row));
    case Is::kDuration:
      return dur_.set(row, time(json, row));
    case Is::kId:
      return id_.set(row, whole(json, row));
    default:
      json.skip_value();
  }
}

// Reads the args. `slot` is theirs, and afterwards that of their end.
void EventColumns::args(Json& json, Slot*& slot, size_t row) {
  args_from_ = json.offset() - 1;
  in_args_ = true;
  rest_text_.assign(1, '{');
  slot = next(json, *slot, true);
  for (; slot->is != Is::kEnd; slot = next(json, *slot, false)) {
    if (slot->is == Is::kArg) {
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
  if (arg.as == kInteger) {
    arg.numbers->set(row, whole(json, row));
  } else if (arg.as == kOne) {
    one(json, slot, row);
  } else if (arg.as == kReal) {
    if (const auto found = number(json, real, row)) {
      arg.reals[row] = *found;
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

// Reads a whole number, alone in a list or by itself. Any other value goes to the args that have no column.
void EventColumns::one(Json& json, const Slot& slot, size_t row) {
  const size_t from = json.offset();
  const bool is_list = json.take("[");
  auto found = json.plain_number<0>();
  if (is_list && found && !json.take("]")) found = {};
  if (!found) {
    json.go_to(from);
    value_text_.clear();
    json.copy_value(value_text_);
    if (value_text_ == "null") return;
    std::string_view digits = value_text_;
    digits.remove_prefix(std::min(digits.find_first_not_of("[] \""), digits.size()));
    digits = digits.substr(0, digits.find_last_not_of("[] \"") + 1);
    int64_t value = 0;
    const auto [end, failed] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (failed == std::errc() && end == digits.data() + digits.size()) found = value;
  }
  if (found) return args_[slot.arg].numbers->set(row, found);
  if (rest_text_.size() > 1) rest_text_ += ", ";
  rest_text_ += slot.key;
  rest_text_ += value_text_;
}

// Sets the category. One that begins with a known one is read as that: they differ in numbers alone, and would be as
// many texts as there are events.
void EventColumns::category(Json& json, Slot& slot, size_t row) {
  const size_t from = json.offset();
  if (!categories_.empty() && json.peek() == '"') {
    const std::string_view text = json.string().raw;
    for (const std::string_view known : categories_) {
      const bool is_one = text.starts_with(known) && text.substr(known.size()).starts_with('_');
      if (is_one) return category_.set(row, category_.words.own(known));
    }
    json.go_to(from);
  }
  text(json, slot, category_, row);
}

// Reads a list. One that was read before is recognised by how it stands in the file.
void EventColumns::list(Json& json, TextColumn& column, size_t row) {
  const size_t from = json.offset();
  const auto seeming = json.seeming_list();
  uint32_t* known = nullptr;
  if (seeming) {
    const uint32_t at = column.lists.code(*seeming);
    if (at == column.codes_of_lists.size()) column.codes_of_lists.push_back(kNone);
    known = &column.codes_of_lists[at];
    if (*known != kNone) return column.set(row, *known);
    json.go_to(from);
  }
  value_text_.clear();
  json.copy_value(value_text_);
  if (value_text_ == "null") return;
  const uint32_t code = column.words.own(value_text_);
  if (seeming && json.since(from) == *seeming) *known = code;  // it is a list, and complete
  column.set(row, code);
}

void EventColumns::text(Json& json, Slot& slot, TextColumn& column, size_t row) {
  if (!slot.last.empty() && json.take(slot.last)) return column.set(row, slot.code);
  if (json.peek() != '"') {
    is_odd_.set(row);
    return json.skip_value();
  }
  const size_t from = json.offset();
  const Json::String found = json.string();
  slot.code = column.words.code(found);
  slot.last = json.since(from);
  column.set(row, slot.code);
}

// Reads a number, or a string that holds one. null gives nothing, and anything else makes the row odd.
template <class Reading>
auto EventColumns::number(Json& json, Reading reading, size_t row) -> decltype(reading({})) {
  const char first = json.peek();
  if (first == '{' || first == '[') {
    json.skip_value();
    is_odd_.set(row);
    return {};
  }
  const std::string_view word = first == '"' ? json.string().raw : json.word();
  const auto found = reading(word);
  if (!found && word != "null") is_odd_.set(row);
  return found;
}

std::optional<int64_t> EventColumns::whole(Json& json, size_t row) {
  const auto plain = json.plain_number<0>();
  return plain ? plain : number(json, integer, row);
}

std::optional<int64_t> EventColumns::time(Json& json, size_t row) {
  const auto plain = json.plain_number<3>();
  return plain ? plain : number(json, thousandfold, row);
}

void EventColumns::number_or_text(Json& json, Slot& slot, Numbers& numbers, TextColumn& texts, size_t row) {
  if (json.peek() != '"') return numbers.set(row, whole(json, row));
  const size_t from = json.offset();
  const Json::String found = json.string();
  if (const auto number = integer(found.raw)) {
    numbers.set(row, number);
  } else {
    json.go_to(from);
    text(json, slot, texts, row);
  }
}

}  // namespace opspan::columns
