// The time that spans cover together: stretches that do not touch, in order; and how much of other stretches it is. A
// span without a length covers nothing.

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

struct Stretches {
  // Spans come in order of their start.
  void add(const ByStart& span) {
    if (ends.empty() || span.start() > ends.back()) {
      starts.push_back(span.start());
      ends.push_back(span.end());
    } else {
      ends.back() = std::max(ends.back(), span.end());
    }
  }
  std::vector<int64_t> starts, ends;
};

Array<int64_t> copied(const std::vector<int64_t>& from) {
  auto to = uninitialized<int64_t>(from.size());
  std::copy(from.begin(), from.end(), to.get());
  return to;
}

}  // namespace

Output cover(const Input& some, const Input& others) {
  ByStart left(some), right(others);
  Stretches found;
  while (!left.done() || !right.done()) {
    ByStart& spans = right.done() || (!left.done() && left.start() <= right.start()) ? left : right;
    found.add(spans);
    spans.step();
  }
  Output out(found.starts.size());
  out.add("start_ns", copied(found.starts));
  out.add("end_ns", copied(found.ends));
  return out;
}

Output covered(const Input& some, const Input& stretches) {
  Stretches found;
  for (ByStart spans(some); !spans.done(); spans.step()) found.add(spans);
  // How much is covered before each. Sums and differences without a sign are right where time is longer than 63 bits.
  std::vector<uint64_t> before(found.starts.size() + 1, 0);
  auto ns = [](int64_t from, int64_t to) { return static_cast<uint64_t>(to) - static_cast<uint64_t>(from); };
  for (size_t at = 0; at < found.starts.size(); ++at)
    before[at + 1] = before[at] + ns(found.starts[at], found.ends[at]);
  auto until = [&](int64_t time) {
    const auto past = std::upper_bound(found.starts.begin(), found.starts.end(), time);
    const size_t count = static_cast<size_t>(past - found.starts.begin());
    return count == 0 || found.ends[count - 1] <= time ? before[count]
                                                       : before[count] - ns(time, found.ends[count - 1]);
  };
  const auto start = stretches.values<int64_t>("start_ns"), end = stretches.values<int64_t>("end_ns");
  auto sums = uninitialized<int64_t>(stretches.rows());
  Bits known(stretches.rows());
  for (size_t row = 0; row < stretches.rows(); ++row) {
    sums[row] = 0;
    if (start.null(row) || end.null(row)) continue;
    known.set(row);
    if (end[row] <= start[row]) continue;
    constexpr uint64_t kMost = std::numeric_limits<int64_t>::max();
    sums[row] = static_cast<int64_t>(std::min(until(end[row]) - until(start[row]), kMost));
  }
  Output out(stretches.rows());
  out.add("ns", std::move(sums), &known);
  return out;
}

}  // namespace opspan::columns
