// The stack of the calling thread as text, read as the observer reads it for an op; without torch.
#include "stack.h"

#include <algorithm>

extern "C" size_t read_stack(char* out, size_t size) {
  opspan::StackWords words;
  opspan::add_stack(words);
  std::string text;
  opspan::append_stack(text, words.data(), words.count());
  std::memcpy(out, text.data(), std::min(size, text.size()));
  return text.size();
}
