// A run of words, as sinks.h hands them on.
#pragma once

#include <cstddef>
#include <vector>

namespace opspan {

// The stack holds what nearly every op needs; more goes to the heap.
template <class Word, size_t kInline>
class Words {
 public:
  void add(Word word) {
    if (count_ < kInline) {
      inline_[count_++] = word;
    } else {
      add_to_heap(word);
    }
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
  // Apart, so that what nearly every word needs is written where it is called.
  [[gnu::noinline]] void add_to_heap(Word word) {
    if (count_ == kInline) more_.assign(inline_, inline_ + kInline);
    more_.push_back(word);
    ++count_;
  }

  size_t count_ = 0;
  Word inline_[kInline];
  std::vector<Word> more_;
};

}  // namespace opspan
