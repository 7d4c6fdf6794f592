// Memory for the values of columns. What is large comes from the system itself, all zeros, and goes back to it at once:
// a heap would keep it, and would have to clear it before it is used again.
#pragma once

#include <cstddef>
#include <memory>

namespace opspan::columns {

struct Free {
  size_t mapped = 0;  // bytes that are the system's; 0: the heap's
  void operator()(void* memory) const;
};
template <class T>
using Array = std::unique_ptr<T[], Free>;

// With room for one byte more. Throws std::bad_alloc.
std::unique_ptr<void, Free> take(size_t bytes, bool zeroed);

template <class T>
Array<T> taken(size_t count, bool zeroed) {
  auto memory = take(count * sizeof(T), zeroed);
  const Free free = memory.get_deleter();
  return {static_cast<T*>(memory.release()), free};
}

template <class T>
Array<T> uninitialized(size_t count) {
  return taken<T>(count, false);
}

// Where nothing is ever written, as in most columns of a label, it takes next to no time or memory.
template <class T>
Array<T> zeroed(size_t count) {
  return taken<T>(count, true);
}

}  // namespace opspan::columns
