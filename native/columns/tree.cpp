// Walks up the tree of parents. nearest finds the nearest marked row: the row itself, or else its nearest marked
// ancestor. rollup sums the device work of each row and of all rows below it. Parents may be any numbers; a number that
// is out of range is ignored. If parents form a ring, which nest never makes, no row of the ring adds its work to
// another row.

#include "columns/interface.h"
#include "columns/order.h"

namespace opspan::columns {
namespace {

// The rows of a frame, each after its parent. Rows in a ring are left out.
class ParentsFirst {
 public:
  explicit ParentsFirst(const Input& frame)
      : parents_(frame.values<Row>("parent")), rows_(frame.rows()), count_(frame.rows()) {
    bool is_sorted = true;  // true while each row comes after its parent
    for (size_t row = 0; row < rows_; ++row) {
      const Row above = parent(static_cast<Row>(row));
      is_sorted = is_sorted && (above == kNone || above < row);
    }
    if (!is_sorted) sort();
  }

  size_t count() const { return count_; }
  Row operator[](size_t at) const { return order_ ? order_[at] : static_cast<Row>(at); }
  Row parent(Row row) const { return parents_.null(row) || parents_[row] >= rows_ ? kNone : parents_[row]; }

 private:
  // Sorts from the leaves up: a row is added once all its children have been added. Rows that are not added are in a
  // ring.
  void sort() {
    auto children = zeroed<uint32_t>(rows_);
    for (size_t row = 0; row < rows_; ++row) {
      if (const Row above = parent(static_cast<Row>(row)); above != kNone) ++children[above];
    }
    order_ = uninitialized<Row>(rows_);
    size_t placed = 0;
    for (size_t row = 0; row < rows_; ++row) {
      if (children[row] == 0) order_[placed++] = static_cast<Row>(row);
    }
    for (size_t at = 0; at < placed; ++at) {
      const Row above = parent(order_[at]);
      if (above != kNone && --children[above] == 0) order_[placed++] = above;
    }
    std::reverse(order_.get(), order_.get() + placed);
    count_ = placed;
  }

  Values<Row> parents_;
  size_t rows_;
  Array<Row> order_;
  size_t count_;
};

int64_t sum(int64_t left, int64_t right) {  // both numbers must be 0 or more; at most the largest int64
  return left > std::numeric_limits<int64_t>::max() - right ? std::numeric_limits<int64_t>::max() : left + right;
}

}  // namespace

Output nearest(const Input& frame) {
  const size_t count = frame.rows();
  const auto marked = frame.flags("marked");
  auto nearest_row = uninitialized<Row>(count);
  std::fill_n(nearest_row.get(), count, kNone);
  const ParentsFirst rows(frame);
  for (size_t at = 0; at < rows.count(); ++at) {
    const Row row = rows[at], parent = rows.parent(row);
    nearest_row[row] = marked[row] ? row : parent == kNone ? kNone : nearest_row[parent];
  }
  Output out(count);
  out.add("nearest", std::move(nearest_row));
  return out;
}

Output rollup(const Input& frame, const Input& work) {
  const size_t count = frame.rows();
  const auto range = work.values<Row>("range");
  const auto start = work.values<int64_t>("start_ns"), end = work.values<int64_t>("end_ns");
  auto self = zeroed<int64_t>(count), total = uninitialized<int64_t>(count);
  for (size_t row = 0; row < work.rows(); ++row) {
    if (range.null(row) || range[row] >= count || start.null(row) || end.null(row) || end[row] <= start[row]) continue;
    const uint64_t duration = static_cast<uint64_t>(end[row]) - static_cast<uint64_t>(start[row]);
    const auto most = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
    self[range[row]] = sum(self[range[row]], static_cast<int64_t>(std::min(duration, most)));
  }
  std::copy_n(self.get(), count, total.get());
  const ParentsFirst rows(frame);
  for (size_t at = rows.count(); at-- > 0;) {
    const Row row = rows[at], parent = rows.parent(row);
    if (parent != kNone) total[parent] = sum(total[parent], total[row]);
  }
  Output out(count);
  out.add("self_device_ns", std::move(self));
  out.add("device_ns", std::move(total));
  return out;
}

}  // namespace opspan::columns
