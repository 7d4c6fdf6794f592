// A column of the result. Several threads fill its cells, and each thread fills the cells of its own rows.
#pragma once

#include <array>
#include <bit>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "columns/columns.h"
#include "sqlite/pages.h"

namespace opspan::sqlite {

enum class Kind : uint8_t { kInt, kInt32, kFloat, kText, kBytes };  // formats/sqlite_pages.py has the same numbers

// The value for rows that were written before their table had this column.
struct Default {
  bool is_known = true;
  bool is_null = true;
  int64_t number = 0;
  std::string text;
};

struct Column {
  using View = columns::Texts::View;

  std::string name;
  int32_t field;  // index of the field in the record; -1: the row id
  Kind kind;
  Default default_value;
  columns::Array<int64_t> numbers;
  columns::Array<int32_t> small;
  columns::Array<double> floats;
  columns::Array<View> texts;
  std::unique_ptr<columns::Bits> valid;

  void begin(size_t rows);
  void give(columns::Output& to, const std::shared_ptr<columns::Blocks>& blocks, bool has_nulls);

  template <class T>
  T* values() {
    if constexpr (std::is_same_v<T, int64_t>) return numbers.get();
    if constexpr (std::is_same_v<T, int32_t>) return small.get();
    if constexpr (std::is_same_v<T, double>) return floats.get();
    if constexpr (std::is_same_v<T, View>) return texts.get();
  }
};

// Tells what a column has in the rows of one thread. Most columns hold nothing, or the same value in all rows. These
// columns are not written and take no memory.
enum class Content : uint8_t { kNothing, kSame, kAll, kSome };

// The cells of one column in the rows of one thread.
class Cells {
 public:
  // `turns` counts how often the Content of any column of these rows has changed.
  Cells(Column& column, size_t from, size_t to, const std::shared_ptr<columns::Blocks>& blocks, size_t& turns)
      : column_(column),
        turns_(turns),
        from_(from),
        to_(to),
        first_(from >> 3),
        last_(to == from ? first_ : (to - 1) >> 3),
        copies_(blocks) {}

  const Column& column() const { return column_; }
  // Sets a cell from a value in a record with this serial type. Eight bytes must be readable at `at`, even if the value
  // has fewer.
  void set(size_t row, uint64_t type, const Byte* at);
  void set_number(size_t row, int64_t value);
  void set_default(size_t row);
  // Returns true if a cell of this type changes nothing in the column. The answer is valid until `turns` changes.
  bool has_all_of(uint64_t type) const;
  size_t text_bytes() const { return text_bytes_; }

  bool holds_nothing() const { return content_ == Content::kNothing; }
  bool has_nulls() const { return content_ == Content::kNothing || content_ == Content::kSome; }
  bool has_same_value(const Cells& other) const {
    return content_ == Content::kSame && other.content_ == Content::kSame &&
           std::memcmp(same_, other.same_, sizeof same_) == 0;
  }
  // Writes the value that all rows so far have in common to the rows before `until`.
  void write(size_t until);
  // Writes the cells that were not written yet. If the column has nulls, also marks which of these rows are not null.
  // Call this once all threads are done, for the cells of one thread after the other.
  void finish(bool has_nulls);

 private:
  template <class T>
  void put(size_t row, const T& value) {
    if (content_ == Content::kSame) {
      if (std::memcmp(same_, &value, sizeof value) == 0) return;
      write(row);
      turn(Content::kAll);
    } else if (content_ == Content::kNothing) {
      if (row == from_) {
        std::memcpy(same_, &value, sizeof value);
        turn(Content::kSame);
        return;
      }
      turn(Content::kSome);
    }
    column_.values<T>()[row] = value;
    if (content_ == Content::kSome) mark(row);
  }
  void put_null(size_t row) {
    if (has_nulls()) return;
    if (content_ == Content::kSame) write(row);
    mark(from_, row);
    turn(Content::kSome);
  }
  void turn(Content content) {
    content_ = content;
    ++turns_;
  }
  // Sets a cell whose type differs from the type of its column. Throws Refusal if the value cannot be converted.
  void set_other(size_t row, uint64_t type, const Byte* at);
  void set_text(size_t row, std::string_view text);
  Column::View view_of(std::string_view text);
  bool remembers_texts();
  void mark(size_t row) {
    const size_t byte = row >> 3;
    const auto bit = static_cast<uint8_t>(1u << (row & 7));
    if (byte == first_) {
      edges_[0] |= bit;
    } else if (byte == last_) {
      edges_[1] |= bit;
    } else {
      column_.valid->bytes()[byte] |= bit;
    }
  }
  void mark(size_t from, size_t to);

  Column& column_;
  size_t& turns_;
  size_t from_, to_, first_, last_;
  Content content_ = Content::kNothing;
  alignas(8) Byte same_[sizeof(Column::View)] = {};
  std::array<uint8_t, 2> edges_{};
  columns::Copies copies_;
  columns::Dictionary copied_texts_;  // texts that were copied already
  std::vector<Column::View> views_;
  size_t sampled_ = 0, repeated_ = 0, skipped_ = 0;  // counts of long texts, which decide whether texts are remembered
  size_t text_bytes_ = 0;
};

// Returns the number of bytes of a cell with this serial type.
inline uint64_t bytes_of(uint64_t type) {
  constexpr std::array<uint8_t, 12> kBytes{0, 1, 2, 3, 4, 6, 8, 8, 0, 0, 0, 0};
  if (type >= 12) return (type - 12) / 2;
  if (type >= 10) throw Refusal("a type that is none");
  return kBytes[type];
}

// Returns the big-endian number in eight bytes.
inline uint64_t eight_bytes(const Byte* at) {
  return __builtin_bswap64(columns::load<uint64_t>(reinterpret_cast<const char*>(at)));
}

inline constexpr uint64_t kNull = 0, kReal = 7, kZero = 8, kOne = 9;

// Returns an integer of 1, 2, 3, 4, 6 or 8 bytes. The types kZero and kOne have no bytes.
inline int64_t integer_at(uint64_t type, const Byte* at) {
  if (type >= kZero) return type == kOne ? 1 : 0;
  return static_cast<int64_t>(eight_bytes(at)) >> (64 - 8 * bytes_of(type));
}

inline bool is_integer(uint64_t type) { return type <= kOne && type != kReal; }  // the type must not be kNull

inline bool Cells::has_all_of(uint64_t type) const {
  if (type == kNull) return has_nulls();
  if (content_ != Content::kSame || type < kZero || type > kOne || column_.kind > Kind::kInt32) return false;
  return columns::load<int64_t>(reinterpret_cast<const char*>(same_)) == integer_at(type, nullptr);
}

inline void Cells::set(size_t row, uint64_t type, const Byte* at) {
  if (type == kNull) {
    put_null(row);
  } else if (column_.kind == Kind::kInt || column_.kind == Kind::kInt32) {
    is_integer(type) ? set_number(row, integer_at(type, at)) : set_other(row, type, at);
  } else if (column_.kind == Kind::kFloat) {
    if (!is_integer(type) && type != kReal) return set_other(row, type, at);
    const double value =
        type == kReal ? std::bit_cast<double>(eight_bytes(at)) : static_cast<double>(integer_at(type, at));
    value != value ? put_null(row) : put(row, value);  // SQLite has no NaN, so NaN is null
  } else {
    if (type < 12 || (column_.kind == Kind::kText && type % 2 == 0)) return set_other(row, type, at);
    set_text(row, {reinterpret_cast<const char*>(at), bytes_of(type)});
  }
}

inline void Cells::set_number(size_t row, int64_t value) {
  if (column_.kind == Kind::kInt) {
    put(row, value);
  } else if (column_.kind == Kind::kInt32) {
    if (value != static_cast<int32_t>(value)) throw Refusal("a number that is too large");
    put(row, static_cast<int32_t>(value));
  } else {
    throw Refusal("a number where none is wanted");
  }
}

}  // namespace opspan::sqlite
