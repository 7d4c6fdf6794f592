// The library that reads the stacks of one release of Python. The observer gets its functions as a table.
#include <algorithm>
#include <cstring>
#include <string>

#include "frames/stack.h"
#include "sinks/sinks.h"

namespace {

const void* innermost(int64_t* instruction) { return opspan::innermost(instruction); }

size_t stack_text(const int64_t* words, size_t count, char* out, size_t size) {
  std::string text;
  opspan::append_stack(text, words, count);
  std::memcpy(out, text.data(), std::min(size, text.size()));
  return text.size();
}

constexpr opspan_frames kFrames = {innermost, {opspan::stack_words, stack_text}};

}  // namespace

extern "C" {
OPSPAN_EXPORT const opspan_frames* opspan_frames_of(int abi) { return abi == OPSPAN_SINKS_ABI ? &kFrames : nullptr; }
}
