#include "columns/event.h"

namespace opspan::columns {

Arg::Arg(std::string_view name, ArgType type, size_t rows) : name(name), type(type) {
  switch (type) {
    case kInteger:
    case kOne:
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
    case kCategory:
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
    if (types[at] > kCategory) throw BadInput("no such type of args");
    if (types[at] == kCategory) {
      categories_.push_back(keys[at]);
      continue;
    }
    if (at == 0 || columns[at] != columns[at - 1])
      args_.emplace_back(columns[at], static_cast<ArgType>(types[at]), rows);
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
