#include "columns/event.h"

namespace opspan::columns {

Arg::Arg(std::string_view name, As as, size_t rows) : name(name), as(as) {
  switch (as) {
    case kInteger:
      numbers.emplace(rows);
      break;
    case kReal:
      reals = zeroed<double>(rows);
      valid.emplace(rows);
      break;
    case kText:
    case kList:
      texts.emplace(rows);
      break;
    case kJson:
      views.emplace(rows);
      break;
  }
}

void Arg::clear(size_t row) {
  if (numbers) numbers->valid.clear(row);
  if (valid) valid->clear(row);
  if (texts) texts->clear(row);
  if (views) views->clear(row);
}

void Arg::give(size_t rows, Output& out) {
  if (numbers) out.add(name.c_str(), std::move(numbers->values), &numbers->valid);
  if (valid) out.add(name.c_str(), std::move(reals), &*valid);
  if (texts) texts->give(name.c_str(), rows, out);
  if (views) views->give(name.c_str(), out);
}

EventColumns::EventColumns(const Input& wanted, size_t rows)
    : phase_(rows),
      category_(rows),
      name_(rows),
      pid_text_(rows),
      tid_text_(rows),
      pid_(rows),
      tid_(rows),
      id_(rows),
      ts_(rows),
      dur_(rows),
      rest_(rows),
      is_odd_(rows) {
  const Texts columns = wanted.texts("column"), keys = wanted.texts("key");
  const Values<uint8_t> types = wanted.values<uint8_t>("as");
  for (size_t at = 0; at < wanted.rows(); ++at) {
    if (types[at] > kJson) throw BadInput("no such type of args");
    if (at == 0 || columns[at] != columns[at - 1]) args_.emplace_back(columns[at], static_cast<As>(types[at]), rows);
    by_key_.emplace(keys[at], args_.size() - 1);
  }
}

void EventColumns::clear(size_t row) {
  for (TextColumn* column : {&phase_, &category_, &name_, &pid_text_, &tid_text_}) column->clear(row);
  for (Numbers* column : {&pid_, &tid_, &id_, &ts_, &dur_}) column->valid.clear(row);
  rest_.clear(row);
  is_odd_.clear(row);
  for (Arg& arg : args_) arg.clear(row);
}

void EventColumns::read(Json& json, size_t row) {
  in_args_ = false;
  json.expect('{');
  for (bool first = true; json.more('}', first); first = false) {
    const std::string_view key = json.string().raw;
    json.expect(':');
    if (key == "ph") {
      text(json, phase_, row);
    } else if (key == "cat") {
      text(json, category_, row);
    } else if (key == "name") {
      text(json, name_, row);
    } else if (key == "pid") {
      place(json, pid_, pid_text_, row);
    } else if (key == "tid") {
      place(json, tid_, tid_text_, row);
    } else if (key == "ts") {
      ts_.set(row, number(json, thousandfold, row));
    } else if (key == "dur") {
      dur_.set(row, number(json, thousandfold, row));
    } else if (key == "id") {
      id_.set(row, number(json, integer, row));
    } else if (key == "args" && json.peek() == '{') {
      args(json, row);
    } else {
      json.skip_value();
    }
  }
  json.take();
}

void EventColumns::args(Json& json, size_t row) {
  args_from_ = json.offset();
  in_args_ = true;
  rest_text_.assign(1, '{');
  json.take();
  for (bool first = true; json.more('}', first); first = false) {
    const Json::String key = json.string();
    json.expect(':');
    const auto found = by_key_.find(key.raw);
    if (found != by_key_.end()) {
      value(json, args_[found->second], row);
      continue;
    }
    if (rest_text_.size() > 1) rest_text_ += ", ";
    quote(Json::text(key, room_), rest_text_);
    rest_text_ += ": ";
    json.copy_value(rest_text_);
  }
  json.take();
  rest_text_ += '}';
  if (rest_text_.size() > 2) rest_.set(row, rest_text_);
  in_args_ = false;
}

void EventColumns::value(Json& json, Arg& arg, size_t row) {
  if (arg.as == kInteger) {
    arg.numbers->set(row, number(json, integer, row));
  } else if (arg.as == kReal) {
    if (const auto found = number(json, real, row)) {
      arg.reals[row] = *found;
      arg.valid->set(row);
    }
  } else if (arg.texts && json.peek() == '"') {
    text(json, *arg.texts, row);
  } else {
    value_text_.clear();
    json.copy_value(value_text_);
    if (value_text_ == "null") return;
    if (arg.views) {
      arg.views->set(row, value_text_);
    } else {
      arg.texts->set(row, arg.texts->words.own(value_text_));
    }
  }
}

void EventColumns::text(Json& json, TextColumn& column, size_t row) {
  if (json.peek() == '"') {
    column.set(row, column.words.code(json.string()));
  } else {
    is_odd_.set(row);
    json.skip_value();
  }
}

// A number, or a string that holds one. null is none, and what is anything else is odd.
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

void EventColumns::place(Json& json, Numbers& numbers, TextColumn& texts, size_t row) {
  if (json.peek() != '"') {
    numbers.set(row, number(json, integer, row));
    return;
  }
  const Json::String found = json.string();
  if (const auto number = integer(found.raw)) {
    numbers.set(row, number);
  } else {
    texts.set(row, texts.words.code(found));
  }
}

void EventColumns::give(size_t rows, Output& out) {
  phase_.give("ph", rows, out);
  category_.give("cat", rows, out);
  name_.give("name", rows, out);
  pid_text_.give("pid_text", rows, out);
  tid_text_.give("tid_text", rows, out);
  out.add("pid", std::move(pid_.values), &pid_.valid);
  out.add("tid", std::move(tid_.values), &tid_.valid);
  out.add("id", std::move(id_.values), &id_.valid);
  out.add("ts_ns", std::move(ts_.values), &ts_.valid);
  out.add("dur_ns", std::move(dur_.values), &dur_.valid);
  rest_.give("rest", out);
  out.add("is_odd", std::move(is_odd_));
  for (Arg& arg : args_) arg.give(rows, out);
}

}  // namespace opspan::columns
