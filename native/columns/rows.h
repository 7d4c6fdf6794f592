// Writes the rows of a frame to bytes, for frames with any columns. Text is the output. Column reads a column by its
// index and not by its name.
#pragma once

#include <algorithm>

#include "columns/columns.h"

namespace opspan::columns {

// A few bytes that are copied often. They are copied in steps of sixteen bytes, so zeros follow the last byte.
class ShortText {
 public:
  static constexpr size_t kStep = 16;
  ShortText() = default;
  explicit ShortText(std::string_view text) { set(text); }
  void set(std::string_view text) {
    bytes_.assign(text);
    bytes_.append(kStep, '\0');
    size_ = text.size();
  }
  char& last() { return bytes_[size_ - 1]; }
  char* copy_to(char* to) const {
    for (size_t at = 0; at < size_; at += kStep) std::memcpy(to + at, bytes_.data() + at, kStep);
    return to + size_;
  }
  size_t size() const { return size_; }

 private:
  std::string bytes_;
  size_t size_ = 0;
};

// The output. A writer keeps the position in a local variable, asks for room at that position, and returns the position
// at which it stopped. If the position were a member of Text, it would be loaded and stored for each value.
class Text {
 public:
  // Makes room for `bytes` bytes, and kStep more, at `to`. Returns `to`, or the new position if the memory has moved.
  char* room(char* to, size_t bytes) {
    if (static_cast<size_t>(end_ - to) >= bytes + ShortText::kStep) [[likely]]
      return to;
    return grow(to, bytes + ShortText::kStep);
  }
  char* add(char* to, const ShortText& text) { return text.copy_to(room(to, text.size())); }
  char* add(char* to, std::string_view text) {
    to = room(to, text.size());
    std::memcpy(to, text.data(), text.size());
    return to + text.size();
  }
  char* begin() { return reinterpret_cast<char*>(bytes_.get()); }
  size_t size(const char* to) { return static_cast<size_t>(to - begin()); }
  Array<uint8_t> take() { return std::move(bytes_); }

 private:
  [[gnu::noinline]] char* grow(char* to, size_t bytes) {
    const size_t size = this->size(to), before = static_cast<size_t>(end_ - begin());
    const size_t wanted = std::max(size + bytes, before * 2);
    auto larger = uninitialized<uint8_t>(wanted);
    if (size > 0) std::memcpy(larger.get(), bytes_.get(), size);
    bytes_ = std::move(larger);
    end_ = begin() + wanted;
    return begin() + size;
  }
  Array<uint8_t> bytes_;
  char* end_ = nullptr;
};

// A column of a frame or of a struct. `from` is the index of its first row in the Arrow array.
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
