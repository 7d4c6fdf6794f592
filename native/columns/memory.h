// Memory for the values of columns. Large blocks come directly from the system, all zeros, and go back to the system as
// soon as they are freed. A heap would keep them, and would have to clear them before the next use.
#pragma once

#include <cstddef>
#include <memory>

namespace opspan::columns {

struct Deleter {
  size_t mapped = 0;  // number of bytes that were mapped; 0: the memory is from the heap
  void operator()(void* memory) const;
};
template <class T>
using Array = std::unique_ptr<T[], Deleter>;

// Allocates memory with room for one extra byte. Throws std::bad_alloc.
std::unique_ptr<void, Deleter> allocate(size_t bytes, bool zeroed);

template <class T>
Array<T> allocate_array(size_t count, bool zeroed) {
  auto memory = allocate(count * sizeof(T), zeroed);
  const Deleter deleter = memory.get_deleter();
  return {static_cast<T*>(memory.release()), deleter};
}

template <class T>
Array<T> uninitialized(size_t count) {
  return allocate_array<T>(count, false);
}

// Returns an array of zeros. Pages that are never written to take next to no time or memory. Most columns of labels are
// never written to.
template <class T>
Array<T> zeroed(size_t count) {
  return allocate_array<T>(count, true);
}

}  // namespace opspan::columns
