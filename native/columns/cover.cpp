// The time that spans cover together: stretches that do not touch, in order. A span without a length covers nothing.

#include "columns/interface.h"
#include "columns/order.h"

namespace opspan::columns {
namespace {

class ByStart {
 public:
  explicit ByStart(const Input& frame)
      : start_(frame.values<int64_t>("start_ns")), end_(frame.values<int64_t>("end_ns")) {
    rows_.reserve(frame.rows());
    for (size_t row = 0; row < frame.rows(); ++row) {
      if (!start_.null(row) && !end_.null(row) && end_[row] > start_[row]) rows_.push_back(static_cast<Row>(row));
    }
    sort_rows(std::span<Row>(rows_), [&](Row row) { return start_[row]; }, std::less<Row>());
  }
  bool done() const { return next_ == rows_.size(); }
  int64_t start() const { return start_[rows_[next_]]; }
  int64_t end() const { return end_[rows_[next_]]; }
  void step() { ++next_; }

 private:
  Values<int64_t> start_, end_;
  std::vector<Row> rows_;  // by their start
  size_t next_ = 0;
};

Array<int64_t> copied(const std::vector<int64_t>& from) {
  auto to = uninitialized<int64_t>(from.size());
  std::copy(from.begin(), from.end(), to.get());
  return to;
}

}  // namespace

Output cover(const Input& some, const Input& others) {
  ByStart left(some), right(others);
  std::vector<int64_t> starts, ends;
  while (!left.done() || !right.done()) {
    ByStart& spans = right.done() || (!left.done() && left.start() <= right.start()) ? left : right;
    if (ends.empty() || spans.start() > ends.back()) {
      starts.push_back(spans.start());
      ends.push_back(spans.end());
    } else {
      ends.back() = std::max(ends.back(), spans.end());
    }
    spans.step();
  }
  Output out(starts.size());
  out.add("start_ns", copied(starts));
  out.add("end_ns", copied(ends));
  return out;
}

}  // namespace opspan::columns
