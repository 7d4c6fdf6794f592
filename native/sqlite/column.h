// A column that is read: its cells in the order of the rows, which several threads fill, each its own rows.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "columns/columns.h"
#include "sqlite/pages.h"

namespace opspan::sqlite {

enum class Kind : uint8_t { kInt, kInt32, kFloat, kText, kBytes };  // as formats/sqlite_pages.py numbers them

// What a row has that was written before its table had the column.
struct Default {
  bool is_known = true;
  bool is_null = true;
  int64_t number = 0;
  std::string text;
};

struct Column {
  std::string name;
  int32_t field;  // of the record; -1: the number of the row
  Kind kind;
  Default otherwise;
  columns::Zeroed<int64_t> numbers;
  columns::Zeroed<int32_t> small;
  columns::Zeroed<double> floats;
  columns::Zeroed<columns::Texts::View> texts;
  std::unique_ptr<columns::Bits> valid;

  void begin(size_t rows);
  // A column of nothing but null is less without memory, and left out unless it is `needed`.
  void give(columns::Output& to, const std::shared_ptr<columns::Blocks>& blocks, bool needed = false);
};

// The rows of one thread in one column.
class Cells {
 public:
  Cells(Column& column, size_t from, size_t to, const std::shared_ptr<columns::Blocks>& blocks)
      : column_(column), first_(from >> 3), last_(to == from ? first_ : (to - 1) >> 3), copies_(blocks) {}

  int32_t field() const { return column_.field; }
  // A cell of a record, by its serial type.
  void set(size_t row, uint64_t type, const Byte* at);
  void set_number(size_t row, int64_t value);
  void set_default(size_t row);
  // Bits in bytes that another thread has rows in, too; once all are done.
  void join();
  size_t text_bytes() const { return text_bytes_; }

 private:
  void set_text(size_t row, std::string_view text);
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

  Column& column_;
  size_t first_, last_;
  std::array<uint8_t, 2> edges_{};
  columns::Copies copies_;
  columns::Dictionary known_;  // texts that were copied already
  std::vector<columns::Texts::View> views_;
  size_t text_bytes_ = 0, long_texts_ = 0;
};

// Bytes of a cell of that type.
inline uint64_t bytes_of(uint64_t type) {
  constexpr std::array<uint8_t, 12> kBytes{0, 1, 2, 3, 4, 6, 8, 8, 0, 0, 0, 0};
  if (type >= 12) return (type - 12) / 2;
  if (type >= 10) throw Declined("a type that is none");
  return kBytes[type];
}

}  // namespace opspan::sqlite
