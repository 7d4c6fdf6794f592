#include "sqlite/column.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "sqlite/utf8.h"

namespace opspan::sqlite {
namespace {

using columns::Texts;

constexpr uint64_t kNull = 0, kReal = 7, kZero = 8, kOne = 9;

// The whole numbers are of 1, 2, 3, 4, 6 or 8 bytes, the highest first.
int64_t whole(uint64_t type, const Byte* at) {
  if (type >= kZero) return type == kOne ? 1 : 0;
  int64_t value = static_cast<int8_t>(at[0]);
  for (uint64_t byte = 1; byte < bytes_of(type); ++byte)
    value = static_cast<int64_t>(static_cast<uint64_t>(value) << 8 | at[byte]);
  return value;
}

bool is_whole(uint64_t type) { return type <= kOne && type != kReal; }  // and not null

}  // namespace

void Column::begin(size_t rows) {
  valid = std::make_unique<columns::Bits>(rows);
  if (kind == Kind::kInt) numbers = columns::zeroed<int64_t>(rows);
  if (kind == Kind::kInt32) small = columns::zeroed<int32_t>(rows);
  if (kind == Kind::kFloat) floats = columns::zeroed<double>(rows);
  if (kind == Kind::kText || kind == Kind::kBytes) texts = columns::zeroed<Texts::View>(rows);
}

void Column::give(columns::Output& to, const std::shared_ptr<columns::Blocks>& blocks, bool needed) {
  bool holds = needed;
  for (uint8_t byte : valid->bytes()) holds = holds || byte != 0;
  if (!holds) return;
  switch (kind) {
    case Kind::kInt:
      to.add(name.c_str(), std::move(numbers), valid.get());
      break;
    case Kind::kInt32:
      to.add(name.c_str(), std::move(small), valid.get());
      break;
    case Kind::kFloat:
      to.add(name.c_str(), std::move(floats), valid.get());
      break;
    case Kind::kText:
      to.add(name.c_str(), std::move(texts), valid.get(), blocks);
      break;
    case Kind::kBytes:
      to.add(name.c_str(), std::move(texts), valid.get(), blocks, false);
      break;
  }
}

void Cells::set(size_t row, uint64_t type, const Byte* at) {
  if (type == kNull) return;
  switch (column_.kind) {
    case Kind::kInt:
    case Kind::kInt32:
      if (!is_whole(type)) throw Declined("a cell that is no whole number");
      set_number(row, whole(type, at));
      return;
    case Kind::kFloat: {
      if (!is_whole(type) && type != kReal) throw Declined("a cell that is no number");
      double value;
      if (type == kReal) {
        uint64_t bits = 0;
        for (int byte = 0; byte < 8; ++byte) bits = bits << 8 | at[byte];
        std::memcpy(&value, &bits, sizeof value);
        if (std::isnan(value)) return;  // SQLite has no such value: it is null
      } else {
        value = static_cast<double>(whole(type, at));
      }
      column_.floats[row] = value;
      mark(row);
      return;
    }
    case Kind::kText:
      if (type < 13 || type % 2 == 0) throw Declined("a cell that is no text");
      break;
    case Kind::kBytes:
      if (type < 12) throw Declined("a cell that is no bytes");
      break;
  }
  set_text(row, {reinterpret_cast<const char*>(at), bytes_of(type)});
}

void Cells::set_number(size_t row, int64_t value) {
  if (column_.kind == Kind::kInt32) {
    if (value < std::numeric_limits<int32_t>::min() || value > std::numeric_limits<int32_t>::max()) {
      throw Declined("a number that is too large");
    }
    column_.small[row] = static_cast<int32_t>(value);
  } else if (column_.kind == Kind::kInt) {
    column_.numbers[row] = value;
  } else {
    throw Declined("a number where none is wanted");
  }
  mark(row);
}

void Cells::set_default(size_t row) {
  const Default& otherwise = column_.otherwise;
  if (!otherwise.is_known) throw Declined("a default that is no plain value");
  if (otherwise.is_null) return;
  if (column_.kind == Kind::kText) {
    set_text(row, otherwise.text);
  } else {
    set_number(row, otherwise.number);
  }
}

void Cells::set_text(size_t row, std::string_view text) {
  if (text.size() > std::numeric_limits<int32_t>::max()) throw Declined("a text that is too long");
  text_bytes_ += text.size();
  const bool is_text = column_.kind == Kind::kText;
  Texts::View& view = column_.texts[row];
  mark(row);
  if (text.size() <= static_cast<size_t>(Texts::kInline)) {
    if (is_text && !is_utf8(text)) throw Declined("a text that is not UTF-8");
    view.length = static_cast<int32_t>(text.size());
    std::memcpy(reinterpret_cast<char*>(&view) + 4, text.data(), text.size());
    return;
  }
  // Most texts are there many times. Where they are not, to remember them is of no use.
  constexpr size_t kTry = 65536;
  const bool is_worth_it = ++long_texts_ < kTry || known_.texts().size() < long_texts_ / 2;
  const uint32_t code = is_worth_it ? known_.code(text) : columns::kNone;
  if (code < views_.size()) {
    view = views_[code];
    return;
  }
  if (is_text && !is_utf8(text)) throw Declined("a text that is not UTF-8");
  const columns::Copy copy = copies_.add(text);
  view.length = static_cast<int32_t>(text.size());
  std::memcpy(view.prefix, text.data(), sizeof view.prefix);
  view.buffer = copy.block;
  view.offset = static_cast<int32_t>(copy.text.data() - copy.block_bytes);
  if (code == columns::kNone) return;
  known_.move(code, copy.text);
  views_.push_back(view);
}

void Cells::join() {
  std::vector<uint8_t>& bytes = column_.valid->bytes();
  if (edges_[0] != 0) bytes[first_] |= edges_[0];
  if (edges_[1] != 0) bytes[last_] |= edges_[1];
}

}  // namespace opspan::sqlite
