// Keeps exceptions inside the library.
#pragma once

#include <cstdio>
#include <exception>
#include <new>

namespace opspan::columns {

inline void say(char* error, size_t size, const char* text) {
  if (error != nullptr && size > 0) std::snprintf(error, size, "%s", text);
}

// Returns 0, or -1 with a sentence in `error`.
template <class Work>
int guarded(Work work, char* error, size_t error_size) {
  try {
    work();
    return 0;
  } catch (const std::bad_alloc&) {
    say(error, error_size, "out of memory");
  } catch (const std::exception& problem) {
    say(error, error_size, problem.what());
  }
  return -1;
}

}  // namespace opspan::columns
