#include "sqlite/column.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>

#include "sqlite/utf8.h"

namespace opspan::sqlite {

using columns::Texts;

namespace {

// Returns the integer that a text holds. Returns nothing unless SQLite itself would write the integer in the same way,
// and a float can hold all its digits.
std::optional<int64_t> written_number(std::string_view text) {
  constexpr size_t kDigits = 15;
  const std::string_view digits = text.substr(text.starts_with('-') ? 1 : 0);
  const bool is_plain = digits.find_first_not_of("0123456789") == std::string_view::npos;
  if (!is_plain || digits.empty() || digits.size() > kDigits || (digits[0] == '0' && text.size() > 1)) return {};
  int64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

}  // namespace

void Column::begin(size_t rows) {
  valid = std::make_unique<columns::Bits>(rows);
  if (kind == Kind::kInt) numbers = columns::zeroed<int64_t>(rows);
  if (kind == Kind::kInt32) small = columns::zeroed<int32_t>(rows);
  if (kind == Kind::kFloat) floats = columns::zeroed<double>(rows);
  if (kind == Kind::kText || kind == Kind::kBytes) texts = columns::zeroed<View>(rows);
}

void Column::give(columns::Output& to, const std::shared_ptr<columns::Blocks>& blocks, bool has_nulls) {
  columns::Bits* bits = has_nulls ? valid.get() : nullptr;
  switch (kind) {
    case Kind::kInt:
      to.add(name.c_str(), std::move(numbers), bits);
      break;
    case Kind::kInt32:
      to.add(name.c_str(), std::move(small), bits);
      break;
    case Kind::kFloat:
      to.add(name.c_str(), std::move(floats), bits);
      break;
    case Kind::kText:
    case Kind::kBytes:
      to.add(name.c_str(), std::move(texts), bits, blocks, kind == Kind::kText);
      break;
  }
}

void Cells::set_default(size_t row) {
  const Default& default_value = column_.default_value;
  if (!default_value.is_known) throw Refusal("a default that is no plain value");
  if (default_value.is_null) {
    put_null(row);
  } else if (column_.kind == Kind::kText) {
    set_text(row, default_value.text);
  } else {
    set_number(row, default_value.number);
  }
}

void Cells::set_other(size_t row, uint64_t type, const Byte* at) {
  const std::string_view cell(reinterpret_cast<const char*>(at), bytes_of(type));
  const bool is_text = type >= 12 && type % 2 == 1;
  switch (column_.kind) {
    case Kind::kInt:
    case Kind::kInt32:
    case Kind::kFloat: {
      // Some tools write an empty text because their columns must not be null.
      if (is_text && cell.empty()) return put_null(row);
      const auto number = is_text ? written_number(cell) : std::nullopt;
      if (!number)
        throw Refusal(column_.kind == Kind::kFloat ? "a cell that is no number" : "a cell that is no whole number");
      return column_.kind == Kind::kFloat ? put(row, static_cast<double>(*number)) : set_number(row, *number);
    }
    case Kind::kText: {
      if (!is_integer(type)) throw Refusal("a cell that is no text");
      std::array<char, 24> room;
      const auto end = std::to_chars(room.data(), room.data() + room.size(), integer_at(type, at)).ptr;
      return set_text(row, {room.data(), end});
    }
    case Kind::kBytes:
      throw Refusal("a cell that is no bytes");
  }
}

void Cells::set_text(size_t row, std::string_view text) {
  if (text.size() > std::numeric_limits<int32_t>::max()) throw Refusal("a text that is too long");
  text_bytes_ += text.size();
  put(row, view_of(text));
}

Column::View Cells::view_of(std::string_view text) {
  const bool is_text = column_.kind == Kind::kText;
  if (text.size() <= static_cast<size_t>(Texts::kInline)) {
    if (is_text && !is_utf8(text)) throw Refusal("a text that is not UTF-8");
    return columns::view_of(text, 0, 0);
  }
  const uint32_t code = remembers_texts() ? copied_texts_.code(text) : columns::kNone;
  if (code < views_.size()) {
    ++repeated_;
    return views_[code];
  }
  if (is_text && !is_utf8(text)) throw Refusal("a text that is not UTF-8");
  const columns::Copy copy = copies_.add(text);
  const Column::View view = columns::view_of(copy);
  if (code == columns::kNone) return view;
  copied_texts_.move(code, copy.text);
  views_.push_back(view);
  return view;
}

// Returns whether texts are remembered now, to be copied only once. Most texts come many times. If they do not, it
// takes longer to remember a text than to copy it.
bool Cells::remembers_texts() {
  constexpr size_t kSample = 16384, kSkipped = 8 * kSample;
  if (skipped_ > 0) {
    --skipped_;
    return false;
  }
  if (++sampled_ > kSample) {
    if (repeated_ < kSample / 4) {
      copied_texts_ = {};
      views_.clear();
      skipped_ = kSkipped;
    }
    sampled_ = repeated_ = 0;
  }
  return skipped_ == 0;
}

void Cells::write(size_t until) {
  auto fill = [&]<class T>(T* values) {
    T value;
    std::memcpy(&value, same_, sizeof value);
    std::fill(values + from_, values + until, value);
  };
  constexpr Byte kZeros[sizeof same_] = {};
  if (std::memcmp(same_, kZeros, sizeof same_) == 0) return;  // the memory is all zeros already
  if (column_.numbers) fill(column_.numbers.get());
  if (column_.small) fill(column_.small.get());
  if (column_.floats) fill(column_.floats.get());
  if (column_.texts) fill(column_.texts.get());
}

void Cells::mark(size_t from, size_t to) {
  while (from < to) {
    const size_t byte = from >> 3;
    if ((from & 7) == 0 && to - from >= 8 && byte != first_ && byte != last_) {
      column_.valid->bytes()[byte] = 0xff;
      from += 8;
    } else {
      mark(from++);
    }
  }
}

void Cells::finish(bool has_nulls) {
  if (content_ == Content::kSame) write(to_);
  if (!has_nulls) return;
  if (content_ == Content::kSame || content_ == Content::kAll) mark(from_, to_);
  std::vector<uint8_t>& bytes = column_.valid->bytes();
  if (edges_[0] != 0) bytes[first_] |= edges_[0];
  if (edges_[1] != 0) bytes[last_] |= edges_[1];
}

}  // namespace opspan::sqlite
