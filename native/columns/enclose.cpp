// Finds the parents of events as torch.profiler does. Events are visited in the order of their start. Each event closes
// all open events that do not contain it; the innermost event that is then still open is its parent. So if two events
// overlap in part, neither is the parent of the other. If two children of a parent overlap, the time that they share is
// subtracted twice from the parent's self time, which may become negative.

#include "columns/interface.h"
#include "columns/order.h"

namespace opspan::columns {

Output enclose(const Input& frame) {
  const size_t count = frame.rows();
  const auto start = frame.values<int64_t>("start_ns"), end = frame.values<int64_t>("end_ns");
  Places places;
  auto threads = places.threads(frame);
  for (size_t row = 0; row < count; ++row) {
    if (start.null(row) || end.null(row)) threads[row] = kNone;
  }
  auto parent = uninitialized<Row>(count);
  auto self = uninitialized<int64_t>(count);
  std::fill_n(parent.get(), count, kNone);
  std::fill_n(self.get(), count, 0);

  Slices by_thread = slices(threads.get(), count, places.thread_count());
  std::vector<Row> stack;
  for (size_t thread = 0; thread < by_thread.count(); ++thread) {
    const std::span<Row> rows = by_thread[thread];
    sort_rows(
        rows, [&](Row row) { return start[row]; },
        [&](Row a, Row b) { return end[a] != end[b] ? end[a] > end[b] : a < b; });
    stack.clear();
    for (Row row : rows) {
      while (!stack.empty() && (start[row] >= end[stack.back()] || end[row] > end[stack.back()])) stack.pop_back();
      // Unsigned subtraction is defined for all times, even those of a damaged file.
      const uint64_t duration = static_cast<uint64_t>(end[row]) - static_cast<uint64_t>(start[row]);
      self[row] = static_cast<int64_t>(static_cast<uint64_t>(self[row]) + duration);
      if (!stack.empty()) {
        parent[row] = stack.back();
        self[stack.back()] = static_cast<int64_t>(static_cast<uint64_t>(self[stack.back()]) - duration);
      }
      stack.push_back(row);
    }
  }

  Output out(count);
  out.add("parent", std::move(parent));
  out.add("self_ns", std::move(self));
  return out;
}

}  // namespace opspan::columns
