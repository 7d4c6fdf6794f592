// Finds the innermost range that is open at points in time on threads. It is the open range that began last. Ranges
// need not nest. An async range counts only if no other range is open.

#include "columns/interface.h"
#include "columns/order.h"

namespace opspan::columns {

Output innermost(const Input& frame, const Input& points) {
  const auto start = frame.values<int64_t>("start_ns"), end = frame.values<int64_t>("end_ns");
  const auto is_async = frame.flags("is_async");
  const auto time = points.values<int64_t>("time_ns");

  Places places;
  auto range_threads = places.threads(frame);
  auto point_threads = places.threads(points);
  // A range that covers no point in time (a mark, or a range without a length) can be left out.
  for (size_t row = 0; row < frame.rows(); ++row) {
    if (start.null(row) || end.null(row) || end[row] <= start[row]) range_threads[row] = kNone;
  }
  auto range_at = uninitialized<Row>(points.rows());
  for (size_t row = 0; row < points.rows(); ++row) {
    range_at[row] = kNone;
    if (time.null(row)) point_threads[row] = kNone;
  }
  Slices ranges_of = slices(range_threads.get(), frame.rows(), places.thread_count());
  Slices points_of = slices(point_threads.get(), points.rows(), places.thread_count());

  std::vector<Row> nested_stack, async_stack;  // stacks of open ranges; ranges below the top may have ended
  auto top = [&](std::vector<Row>& stack, int64_t at) {
    while (!stack.empty() && end[stack.back()] <= at) stack.pop_back();
    return stack.empty() ? kNone : stack.back();
  };
  for (size_t thread = 0; thread < ranges_of.count(); ++thread) {
    const std::span<Row> ranges = ranges_of[thread], points_here = points_of[thread];
    if (ranges.empty() || points_here.empty()) continue;
    sort_rows(
        ranges, [&](Row row) { return start[row]; },
        [&](Row a, Row b) { return end[a] != end[b] ? end[a] > end[b] : a < b; });
    sort_rows(points_here, [&](Row row) { return time[row]; }, std::less<Row>());
    nested_stack.clear();
    async_stack.clear();
    auto next = ranges.begin();
    for (Row point : points_here) {
      const int64_t at = time[point];
      for (; next != ranges.end() && start[*next] <= at; ++next) {
        // Ended ranges on top are popped now, so that the stack is no deeper than the program's. Ended ranges below the
        // top are popped once they are on top.
        std::vector<Row>& stack = is_async[*next] ? async_stack : nested_stack;
        top(stack, start[*next]);
        stack.push_back(*next);
      }
      range_at[point] = top(nested_stack, at);
      if (range_at[point] == kNone) range_at[point] = top(async_stack, at);
    }
  }
  Output out(points.rows());
  out.add("range", std::move(range_at));
  return out;
}

}  // namespace opspan::columns
