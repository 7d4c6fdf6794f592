// The stack of the calling thread as text, read as the observer reads it for an op; without torch.
#include "frames/stack.h"

#include <algorithm>

extern "C" size_t read_stack(char* out, size_t size) {
  int64_t words[768], instruction = -1;
  size_t count = opspan::stack_words(words, std::size(words));
  // Where the thread is in Python is told of the same frame.
  if (opspan::innermost(&instruction) ? instruction != words[2] >> 32 : count != 0) return 0;
  std::string text;
  opspan::append_stack(text, words, count);
  std::memcpy(out, text.data(), std::min(size, text.size()));
  return text.size();
}
