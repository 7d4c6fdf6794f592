// Work in several threads.
#pragma once

#include <cstddef>
#include <exception>
#include <thread>
#include <vector>

namespace opspan::columns {

// Runs work(n) for each n below `count` in a thread of its own, the first in this one. What one throws is thrown here.
template <class Work>
void together(size_t count, const Work& work) {
  std::vector<std::exception_ptr> failed(count);
  auto one = [&](size_t n) {
    try {
      work(n);
    } catch (...) {
      failed[n] = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> threads;
    for (size_t n = 1; n < count; ++n) threads.emplace_back(one, n);
    if (count > 0) one(0);
  }
  for (const std::exception_ptr& each : failed) {
    if (each) std::rethrow_exception(each);
  }
}

}  // namespace opspan::columns
