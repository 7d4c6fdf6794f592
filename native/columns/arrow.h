// Passes columns in and out through the Arrow C data interface
// (https://arrow.apache.org/docs/format/CDataInterface.html). It supports only what is needed here. Columns that come
// in are flat: integers, bits and string views. Columns that go out are integers, bits, string views or dictionaries of
// strings.
//
// Input reads a frame in place, without copying values. Output owns the memory of its columns until the consumer
// releases it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "columns/memory.h"

extern "C" {

struct ArrowSchema {
  const char* format;
  const char* name;
  const char* metadata;
  int64_t flags;
  int64_t n_children;
  ArrowSchema** children;
  ArrowSchema* dictionary;
  void (*release)(ArrowSchema*);
  void* private_data;
};

struct ArrowArray {
  int64_t length;
  int64_t null_count;
  int64_t offset;
  int64_t n_buffers;
  int64_t n_children;
  const void** buffers;
  ArrowArray** children;
  ArrowArray* dictionary;
  void (*release)(ArrowArray*);
  void* private_data;
};

struct ArrowArrayStream {
  int (*get_schema)(ArrowArrayStream*, ArrowSchema*);
  int (*get_next)(ArrowArrayStream*, ArrowArray*);
  const char* (*get_last_error)(ArrowArrayStream*);
  void (*release)(ArrowArrayStream*);
  void* private_data;
};

}  // extern "C"

namespace opspan::columns {

// The number of a row. It has 32 bits, as in polars. The largest number means that there is no row.
using Row = uint32_t;
inline constexpr Row kNone = std::numeric_limits<Row>::max();

// Thrown if the caller made a mistake, not if the data are bad: a column is missing, has another type, or comes in
// several batches.
struct BadInput : std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};

inline bool bit(const uint8_t* bits, size_t at) { return (bits[at >> 3] >> (at & 7)) & 1; }

// One bit for each row, 0 at first. Threads may set bits at the same time only if the bits are in different bytes. So
// rows are divided among threads at multiples of 8.
class Bits {
 public:
  explicit Bits(size_t rows) : bytes_((rows + 7) / 8) {}
  void set(size_t row) { bytes_[row >> 3] |= static_cast<uint8_t>(1u << (row & 7)); }
  void clear(size_t row) { bytes_[row >> 3] &= static_cast<uint8_t>(~(1u << (row & 7))); }
  bool operator[](size_t row) const { return bit(bytes_.data(), row); }
  std::vector<uint8_t>& bytes() { return bytes_; }

 private:
  std::vector<uint8_t> bytes_;
};

// The letter by which the Arrow interface names each type.
template <class T>
inline constexpr const char* kFormat = nullptr;
template <>
inline constexpr const char* kFormat<int32_t> = "i";
template <>
inline constexpr const char* kFormat<int64_t> = "l";
template <>
inline constexpr const char* kFormat<uint32_t> = "I";
template <>
inline constexpr const char* kFormat<uint8_t> = "C";
template <>
inline constexpr const char* kFormat<double> = "g";

// --- columns that come in

struct Nulls {
  const uint8_t* validity = nullptr;  // null: there are no nulls
  size_t offset = 0;
  bool operator()(size_t row) const { return validity != nullptr && !bit(validity, offset + row); }
};

template <class T>
struct Values {
  const T* data = nullptr;
  Nulls null;
  T operator[](size_t row) const { return data[row]; }
  // Returns whether this row and the row before it hold the same value and are not null.
  bool is_repeated(size_t row) const { return !null(row) && !null(row - 1) && data[row] == data[row - 1]; }
};

struct Flags {  // a column of booleans; null is false
  const uint8_t* data = nullptr;
  size_t offset = 0;
  Nulls null;
  bool operator[](size_t row) const { return !null(row) && bit(data, offset + row); }
};

struct Texts {  // a column of string views
  struct View {
    int32_t length;
    char prefix[4];
    int32_t buffer;
    int32_t offset;
  };
  static_assert(sizeof(View) == 16);
  static constexpr int32_t kInline = 12;

  const View* views = nullptr;
  const void* const* buffers = nullptr;
  Nulls null;

  std::string_view operator[](size_t row) const {
    const View& view = views[row];
    const size_t length = static_cast<uint32_t>(view.length);
    if (view.length <= kInline) return {reinterpret_cast<const char*>(&view) + 4, length};
    return {static_cast<const char*>(buffers[view.buffer]) + view.offset, length};
  }
};

class Input {
 public:
  explicit Input(ArrowArrayStream* stream);
  Input(const Input&) = delete;
  Input& operator=(const Input&) = delete;
  ~Input();

  size_t rows() const { return rows_; }
  // For callers that accept any columns. Call batch() only if there are rows.
  const ArrowSchema& schema() const { return schema_; }
  const ArrowArray& batch() const { return *batch_; }
  bool has(const char* name) const { return find(name) != nullptr; }
  template <class T>
  Values<T> values(const char* name) const;
  Flags flags(const char* name) const;
  Texts texts(const char* name) const;
  // Returns the buffers of a column of texts, so that an output can keep using them: first the views of the rows, then
  // the buffers with the texts to which the views point, and last the sizes of these buffers. The frame must have rows.
  std::vector<std::shared_ptr<const void>> text_buffers(const char* name) const;

 private:
  const ArrowArray* find(const char* name, const char** format = nullptr) const;
  const ArrowArray& expect(const char* name, std::string_view format) const;
  size_t offset(const ArrowArray& column) const { return static_cast<size_t>(batch_->offset + column.offset); }
  Nulls nulls(const ArrowArray& column) const;

  ArrowSchema schema_{};
  std::shared_ptr<ArrowArray> batch_;  // null: there are no rows
  size_t rows_ = 0;
};

template <>
Values<int32_t> Input::values(const char* name) const;
template <>
Values<int64_t> Input::values(const char* name) const;
template <>
Values<uint32_t> Input::values(const char* name) const;
template <>
Values<uint8_t> Input::values(const char* name) const;

// --- columns that go out

// Copies of texts, in blocks of memory. Texts are copied because views into the memory of another owner would keep all
// of that memory alive. Several threads may take blocks at the same time.
class Blocks {
 public:
  // Returns a block to write to. Its address never changes.
  std::pair<char*, int32_t> take(size_t bytes);
  size_t count() const { return blocks_.size(); }
  const char* bytes(size_t block) const { return blocks_[block].get(); }
  const int64_t* sizes() const { return sizes_.data(); }

 private:
  std::mutex lock_;
  std::vector<Array<char>> blocks_;
  std::vector<int64_t> sizes_;
};

class Output {
 public:
  explicit Output(size_t rows) : rows_(rows) {}

  void add(const char* name, Array<Row> rows);  // the row kNone becomes null
  template <class T>
  void add(const char* name, Array<T> values, Bits* valid = nullptr) {
    column(name, kFormat<T>, valid).owners.push_back(std::shared_ptr<T[]>(std::move(values)));
  }
  void add(const char* name, Bits&& flags);
  // Adds a column of views into `buffers`. The last buffer holds the sizes of the others.
  void add(const char* name, std::shared_ptr<const void> views, Bits* valid,
           std::vector<std::shared_ptr<const void>> buffers, bool is_text = true);
  // Adds a column of views into `blocks`. Several columns may share the blocks.
  void add(const char* name, Array<Texts::View> views, Bits* valid, const std::shared_ptr<Blocks>& blocks,
           bool is_text = true);
  // Adds a column of codes of texts in `dictionary`. The code kNone means null.
  void add(const char* name, Array<uint32_t> codes, std::vector<std::string_view> dictionary);

  // Marks the column that was added last as constant: it has only one row, whose value is that of all rows.
  void mark_constant() { columns_.back().length = 1; }

  bool is_empty() const { return columns_.empty(); }
  // Hands over the frame as a struct array. After that, this object is empty.
  void give(ArrowSchema* schema, ArrowArray* array);

 private:
  struct Column {
    std::string name;
    const char* format = "";
    int64_t null_count = 0;
    size_t length = 0;
    std::vector<std::shared_ptr<const void>> owners;  // the validity bits or null, then the others in Arrow's order
    std::vector<const void*> buffers;
    std::unique_ptr<Column> dictionary;
  };
  Column& column(const char* name, const char* format, Bits* valid);
  static void give(Column&& column, ArrowSchema* schema, ArrowArray* array);

  size_t rows_;
  std::vector<Column> columns_;
};

}  // namespace opspan::columns
