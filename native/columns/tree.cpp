// Up the tree of parents: the nearest row that is marked, and what work amounts to below each row. Parents may be any
// numbers. One that is out of range is no parent. Rows in a ring, which nest never makes, count their own work alone.

#include "columns/interface.h"
#include "columns/order.h"

namespace opspan::columns {
namespace {

// Rows so that each comes after its parent. Rows in a ring, and below one, are left out.
std::vector<Row> parents_first(const Input& frame, Row* parents) {
  const auto given = frame.values<Row>("parent");
  const size_t count = frame.rows();
  std::vector<uint32_t> children(count, 0);
  for (size_t row = 0; row < count; ++row) {
    parents[row] = given.null(row) || given[row] >= count ? kNone : given[row];
    if (parents[row] != kNone) ++children[parents[row]];
  }
  // Leaves first: a row follows when its last child has. What is left over when no leaf is, is a ring.
  std::vector<Row> order;
  order.reserve(count);
  for (size_t row = 0; row < count; ++row) {
    if (children[row] == 0) order.push_back(static_cast<Row>(row));
  }
  for (size_t at = 0; at < order.size(); ++at) {
    const Row parent = parents[order[at]];
    if (parent != kNone && --children[parent] == 0) order.push_back(parent);
  }
  std::reverse(order.begin(), order.end());
  return order;
}

int64_t sum(int64_t left, int64_t right) {  // of what is not negative
  return left > std::numeric_limits<int64_t>::max() - right ? std::numeric_limits<int64_t>::max() : left + right;
}

}  // namespace

Output nearest(const Input& frame) {
  const size_t count = frame.rows();
  const auto marked = frame.flags("marked");
  auto parents = uninitialized<Row>(count);
  auto found = uninitialized<Row>(count);
  std::fill_n(found.get(), count, kNone);
  for (Row row : parents_first(frame, parents.get())) {
    found[row] = marked[row] ? row : parents[row] == kNone ? kNone : found[parents[row]];
  }
  Output out(count);
  out.add("nearest", std::move(found));
  return out;
}

Output rollup(const Input& frame, const Input& work) {
  const size_t count = frame.rows();
  const auto range = work.values<Row>("range");
  const auto start = work.values<int64_t>("start_ns"), end = work.values<int64_t>("end_ns");
  auto self = uninitialized<int64_t>(count), total = uninitialized<int64_t>(count);
  std::fill_n(self.get(), count, 0);
  for (size_t row = 0; row < work.rows(); ++row) {
    if (range.null(row) || range[row] >= count || start.null(row) || end.null(row) || end[row] <= start[row]) continue;
    const uint64_t took = static_cast<uint64_t>(end[row]) - static_cast<uint64_t>(start[row]);
    const auto most = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
    self[range[row]] = sum(self[range[row]], static_cast<int64_t>(std::min(took, most)));
  }
  std::copy_n(self.get(), count, total.get());
  auto parents = uninitialized<Row>(count);
  const std::vector<Row> order = parents_first(frame, parents.get());
  for (auto row = order.rbegin(); row != order.rend(); ++row) {
    const Row parent = parents[*row];
    if (parent != kNone) total[parent] = sum(total[parent], total[*row]);
  }
  Output out(count);
  out.add("self_device_ns", std::move(self));
  out.add("device_ns", std::move(total));
  return out;
}

}  // namespace opspan::columns
