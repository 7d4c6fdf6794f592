// An array of words (64-bit numbers), in the form in which sinks.h passes words on.
#pragma once

#include <cstddef>
#include <vector>

namespace opspan {

// Keeps the first kInline words on the stack, which is enough for nearly every op. Further words go to the heap.
template <class Word, size_t kInline>
class Words {
 public:
  void add(Word word) { *extend(1) = word; }
  // Adds `count` words, and returns their address. The caller fills them in before the next call.
  Word* extend(size_t count) {
    if (count_ + count > kInline) [[unlikely]]
      return extend_heap(count);
    Word* room = inline_ + count_;
    count_ += count;
    return room;
  }
  void add(const Words& others) {
    for (size_t i = 0; i < others.count(); ++i) add(others.data()[i]);
  }
  void cut(size_t count) {
    count_ = count;
    if (!more_.empty()) more_.resize(count);
  }
  size_t count() const { return count_; }
  const Word* data() const { return count_ > kInline ? more_.data() : inline_; }

 private:
  [[gnu::cold, gnu::noinline]] Word* extend_heap(size_t count) {
    if (count_ <= kInline) more_.assign(inline_, inline_ + count_);
    more_.resize(count_ + count);
    count_ += count;
    return more_.data() + (count_ - count);
  }

  size_t count_ = 0;
  Word inline_[kInline];
  std::vector<Word> more_;
};

}  // namespace opspan
