// Rows of a frame that are written to bytes, whatever columns they have: the bytes, and a column by its place.
#pragma once

#include <algorithm>

#include "columns/columns.h"

namespace opspan::columns {

// A few bytes that are copied often: sixteen at a time, with room to read behind them.
class Short {
 public:
  static constexpr size_t kStep = 16;
  explicit Short(std::string_view text = {}) { set(text); }
  void set(std::string_view text) {
    bytes_.assign(text);
    bytes_.append(kStep, '\0');
    size_ = text.size();
  }
  char* copy_to(char* to) const {
    for (size_t at = 0; at < size_; at += kStep) std::memcpy(to + at, bytes_.data() + at, kStep);
    return to + size_;
  }
  size_t size() const { return size_; }

 private:
  std::string bytes_;
  size_t size_ = 0;
};

// What is being written, with room behind its end.
class Text {
 public:
  // For so many bytes, and a step more, at the end; then they are `wrote` up to there.
  char* room(size_t bytes) {
    const size_t wanted = size_ + bytes + Short::kStep;
    if (wanted > room_) grow(std::max(wanted, room_ * 2));
    return begin() + size_;
  }
  void wrote(const char* end) { size_ = static_cast<size_t>(end - begin()); }
  void add(const Short& text) { wrote(text.copy_to(room(text.size()))); }
  void add(std::string_view text) {
    std::memcpy(room(text.size()), text.data(), text.size());
    size_ += text.size();
  }
  void cut(size_t size) { size_ = size; }
  size_t size() const { return size_; }
  char& operator[](size_t at) { return begin()[at]; }
  Array<uint8_t> take() { return std::move(bytes_); }

 private:
  char* begin() { return reinterpret_cast<char*>(bytes_.get()); }
  void grow(size_t room) {
    auto larger = uninitialized<uint8_t>(room);
    if (size_ > 0) std::memcpy(larger.get(), bytes_.get(), size_);
    bytes_ = std::move(larger);
    room_ = room;
  }
  Array<uint8_t> bytes_;
  size_t size_ = 0, room_ = 0;
};

// A column of a frame or of a struct; `from` is where its rows begin.
struct Column {
  const ArrowSchema& schema;
  const ArrowArray& array;
  size_t from;

  Column(const ArrowSchema& type, const ArrowArray& data, size_t parent_from)
      : schema(type), array(data), from(parent_from + static_cast<size_t>(data.offset)) {}

  Nulls nulls() const {
    if (array.null_count == 0) return {};
    return {static_cast<const uint8_t*>(array.buffers[0]), from};
  }
  template <class T>
  Values<T> values() const {
    return {static_cast<const T*>(array.buffers[1]) + from, nulls()};
  }
  Flags flags() const { return {static_cast<const uint8_t*>(array.buffers[1]), from, nulls()}; }
  Texts texts() const { return {static_cast<const Texts::View*>(array.buffers[1]) + from, array.buffers + 2, nulls()}; }
};

}  // namespace opspan::columns
