// Turns exceptions into error messages, so that no exception leaves the library.
#pragma once

#include <cstdio>
#include <exception>
#include <new>

namespace opspan::columns {

inline void say(char* error, size_t size, const char* text) {
  if (error != nullptr && size > 0) std::snprintf(error, size, "%s", text);
}

// Calls `work` and returns 0. If it throws, writes a sentence to `error` and returns -1.
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
