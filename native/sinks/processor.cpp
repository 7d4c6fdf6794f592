#include "sinks/processor.h"

#include <algorithm>
#include <cstring>

#include "capture/processor.h"

size_t opspan_processor(const char* root, char* out, size_t size) {
  std::string entries = opspan::capture::describe_processor(root);
  std::memcpy(out, entries.data(), std::min(size, entries.size()));
  return entries.size();
}
