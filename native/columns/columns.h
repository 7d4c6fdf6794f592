// Columns of a result, while their rows are filled in. A column holds numbers, codes of texts in a dictionary, or views
// of copied texts.
#pragma once

#include <bit>
#include <cstring>
#include <optional>
#include <string_view>
#include <tuple>

#include "columns/arrow.h"

namespace opspan::columns {

template <class Word>
Word load(const char* at) {
  Word word;
  std::memcpy(&word, at, sizeof word);
  return word;
}

// Returns a 64-bit word for hashing, which contains these bytes (seven at most), some of them twice. The bytes are not
// copied to memory and read back as one word, because that read would wait for the copy.
inline uint64_t few_bytes(const char* at, size_t count) {
  if (count >= 4) return load<uint32_t>(at) | uint64_t{load<uint32_t>(at + count - 4)} << 32;
  if (count == 0) return 0;
  auto byte = [&](size_t place) { return uint64_t{static_cast<uint8_t>(at[place])}; };
  return byte(0) | byte(count / 2) << 8 | byte(count - 1) << 16;
}

inline uint64_t hash(std::string_view text) {
  constexpr uint64_t kMix = 0x9e3779b97f4a7c15u;
  uint64_t sum = text.size() * kMix;
  auto mix = [&](uint64_t word) { sum = std::rotl((sum ^ word) * kMix, 29); };
  const char* at = text.data();
  size_t left = text.size();
  for (; left >= sizeof(uint64_t); at += sizeof(uint64_t), left -= sizeof(uint64_t)) mix(load<uint64_t>(at));
  mix(few_bytes(at, left));
  return sum ^ (sum >> 32);
}

// Gives each distinct text a number, its code, in the order in which texts are first seen. It does not copy the texts.
class Dictionary {
 public:
  Dictionary() : slots_(256, Slot{0, kNone}) {}

  uint32_t code(std::string_view text) {
    const uint64_t full_hash = hash(text);
    const auto check = static_cast<uint32_t>(full_hash >> 32);
    size_t at = full_hash & (slots_.size() - 1);
    while (slots_[at].code != kNone) {
      if (slots_[at].check == check && texts_[slots_[at].code] == text) return slots_[at].code;
      at = (at + 1) & (slots_.size() - 1);
    }
    const auto code = static_cast<uint32_t>(texts_.size());
    slots_[at] = {check, code};
    texts_.push_back(text);
    if (texts_.size() * 2 > slots_.size()) grow();
    return code;
  }
  // Tells the dictionary that the text of a code now has another address.
  void move(uint32_t code, std::string_view to) { texts_[code] = to; }
  const std::vector<std::string_view>& texts() const { return texts_; }

 private:
  struct Slot {
    uint32_t check;
    uint32_t code;
  };
  void grow() {
    slots_.assign(slots_.size() * 2, Slot{0, kNone});
    for (uint32_t code = 0; code < texts_.size(); ++code) {
      const uint64_t full_hash = hash(texts_[code]);
      size_t at = full_hash & (slots_.size() - 1);
      while (slots_[at].code != kNone) at = (at + 1) & (slots_.size() - 1);
      slots_[at] = {static_cast<uint32_t>(full_hash >> 32), code};
    }
  }
  std::vector<Slot> slots_;
  std::vector<std::string_view> texts_;
};

struct Numbers {
  explicit Numbers(size_t rows) : values(zeroed<int64_t>(rows)), valid(rows) {}
  void set(size_t row, const std::optional<int64_t>& value) {
    if (!value) return;
    values[row] = *value;
    valid.set(row);
  }
  Array<int64_t> values;
  Bits valid;
};

// A text in the block to which it was copied.
struct Copy {
  std::string_view text;
  const char* block_bytes;
  int32_t block;
};

// Copies texts into blocks, one after the other.
class Copies {
 public:
  explicit Copies(std::shared_ptr<Blocks> blocks) : blocks_(std::move(blocks)) {}
  Copy add(std::string_view text) {
    if (text.size() > left_) {
      // All blocks after the first have the size of the processor's large pages. Larger blocks would stay half empty.
      constexpr size_t kFirst = size_t{1} << 20, kBlock = size_t{1} << 21;
      left_ = std::max(begin_ ? kBlock : kFirst, text.size());
      std::tie(begin_, number_) = blocks_->take(left_);
      at_ = begin_;
    }
    std::memcpy(at_, text.data(), text.size());
    const Copy copy{{at_, text.size()}, begin_, number_};
    at_ += text.size();
    left_ -= text.size();
    return copy;
  }

 private:
  std::shared_ptr<Blocks> blocks_;
  char *begin_ = nullptr, *at_ = nullptr;
  size_t left_ = 0;
  int32_t number_ = 0;
};

// Returns the view of a text that is at `offset` in `buffer`.
inline Texts::View view_of(std::string_view text, int32_t buffer, int32_t offset) {
  Texts::View view{};
  view.length = static_cast<int32_t>(text.size());
  if (text.size() <= static_cast<size_t>(Texts::kInline)) {
    std::memcpy(reinterpret_cast<char*>(&view) + 4, text.data(), text.size());
  } else {
    std::memcpy(view.prefix, text.data(), sizeof view.prefix);
    view.buffer = buffer;
    view.offset = offset;
  }
  return view;
}
inline Texts::View view_of(const Copy& copy) {
  return view_of(copy.text, copy.block, static_cast<int32_t>(copy.text.data() - copy.block_bytes));
}

struct Views {
  explicit Views(size_t rows) : views(zeroed<Texts::View>(rows)), valid(rows) {}
  void set(size_t row, const Texts::View& view) {
    views[row] = view;
    valid.set(row);
  }
  Array<Texts::View> views;
  Bits valid;
};

struct Codes {
  explicit Codes(size_t rows) : codes(uninitialized<uint32_t>(rows)) {}
  Array<uint32_t> codes;
};

}  // namespace opspan::columns
