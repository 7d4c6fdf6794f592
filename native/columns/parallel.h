// Runs work in several threads, and splits rows among them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <exception>
#include <thread>
#include <vector>

#include "columns/columns.h"

namespace opspan::columns {

// Runs work(n) for each n below `count`. work(0) runs in this thread, and every other call runs in a new thread. If a
// call throws, this function throws the same exception.
template <class Work>
void run_parallel(size_t count, const Work& work) {
  std::vector<std::exception_ptr> failures(count);
  auto run = [&](size_t n) {
    try {
      work(n);
    } catch (...) {
      failures[n] = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> threads;
    for (size_t n = 1; n < count; ++n) threads.emplace_back(run, n);
    if (count > 0) run(0);
  }
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

// Consecutive rows, for one thread. A struct that is derived from Rows adds the dictionaries of these rows.
struct Rows {
  size_t from = 0, to = 0;
};

template <class Part>
std::vector<Part> parts_of(size_t rows, int64_t workers) {
  constexpr size_t kLeastRows = 65536;  // the fewest rows for which another thread saves time
  const size_t most = std::max<size_t>(1, static_cast<size_t>(std::max<int64_t>(1, workers)));
  const size_t count = std::min(most, rows / kLeastRows + 1);
  // A multiple of 64, so that no two parts write bits of the same byte.
  const size_t rows_per_part = (rows / count + 64) & ~size_t{63};
  std::vector<Part> parts;
  for (size_t from = 0; from < rows; from += rows_per_part) {
    parts.emplace_back();
    parts.back().from = from;
    parts.back().to = std::min(rows, from + rows_per_part);
  }
  return parts;
}

// Merges the dictionaries of all parts into one, and changes all codes to codes of that dictionary. Returns its texts.
template <class Part>
std::vector<std::string_view> join(std::vector<Part>& parts, Dictionary Part::* dictionary, Codes& codes) {
  if (parts.empty()) return {};
  Dictionary all = std::move(parts[0].*dictionary);
  for (size_t at = 1; at < parts.size(); ++at) {
    std::vector<uint32_t> to;
    for (std::string_view text : (parts[at].*dictionary).texts()) to.push_back(all.code(text));
    for (size_t row = parts[at].from; row < parts[at].to; ++row) {
      uint32_t& code = codes.codes[row];
      if (code != kNone) code = to[code];
    }
  }
  return all.texts();
}

}  // namespace opspan::columns
