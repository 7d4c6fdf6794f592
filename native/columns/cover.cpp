// Compares spans and stretches of time, by group. cover merges the spans into ordered stretches that do not touch,
// covered measures how much of each stretch the spans cover, and within finds the points in each stretch. A span
// without a length covers nothing.

#include "columns/interface.h"
#include "columns/order.h"

namespace opspan::columns {
namespace {

// The spans of time in a data frame, grouped by the columns by0, by1, ... walk(group) goes to a group. From then on,
// the spans of this group come in the order of their starts.
class Spans {
 public:
  Spans(const Input& frame, Groups& groups)
      : start_(frame.values<int64_t>("start_ns")), end_(frame.values<int64_t>("end_ns")), groups_(groups.of(frame)) {
    for (size_t row = 0; row < frame.rows(); ++row) {
      if (start_.null(row) || end_.null(row) || end_[row] <= start_[row]) groups_[row] = kNone;
    }
    count_ = frame.rows();
  }
  // Call this once the groups of all frames are known, and before walk().
  void slice(const Groups& groups) { slices_ = slices(groups_.get(), count_, groups.count()); }
  void walk(size_t group) {
    rows_ = slices_[group];
    next_ = 0;
    sort_rows(rows_, [&](Row row) { return start_[row]; }, std::less<Row>());
  }
  bool done() const { return next_ == rows_.size(); }
  int64_t start() const { return start_[rows_[next_]]; }
  int64_t end() const { return end_[rows_[next_]]; }
  Row row() const { return rows_[next_]; }
  void step() { ++next_; }

 private:
  Values<int64_t> start_, end_;
  Array<uint32_t> groups_;
  size_t count_ = 0;
  Slices slices_;
  std::span<Row> rows_;  // rows of the group, in the order of their starts
  size_t next_ = 0;
};

struct Stretches {
  // Adds a span. The spans of a group must come in the order of their starts. `first` is the number of stretches that
  // earlier groups have.
  void add(const Spans& span, size_t first = 0) {
    if (ends.size() == first || span.start() > ends.back()) {
      starts.push_back(span.start());
      ends.push_back(span.end());
    } else {
      ends.back() = std::max(ends.back(), span.end());
    }
  }
  void clear() {
    starts.clear();
    ends.clear();
  }
  std::vector<int64_t> starts, ends;
};

Array<int64_t> copy_of(const std::vector<int64_t>& from) {
  auto to = uninitialized<int64_t>(from.size());
  std::copy(from.begin(), from.end(), to.get());
  return to;
}

// Computes how much of the time before a moment is covered. It uses unsigned numbers, because their sums and
// differences are right even if a time needs more than 63 bits.
class CoveredTime {
 public:
  explicit CoveredTime(const Stretches& of) : of_(of), before_(of.starts.size() + 1, 0) {
    for (size_t at = 0; at < of.starts.size(); ++at) before_[at + 1] = before_[at] + ns(of.starts[at], of.ends[at]);
  }
  uint64_t until(int64_t time) const {
    const auto past = std::upper_bound(of_.starts.begin(), of_.starts.end(), time);
    const size_t count = static_cast<size_t>(past - of_.starts.begin());
    return count == 0 || of_.ends[count - 1] <= time ? before_[count] : before_[count] - ns(time, of_.ends[count - 1]);
  }

 private:
  static uint64_t ns(int64_t from, int64_t to) { return static_cast<uint64_t>(to) - static_cast<uint64_t>(from); }
  const Stretches& of_;
  std::vector<uint64_t> before_;  // the time covered before each stretch
};

}  // namespace

Output cover(const Input& frame, const Input& others) {
  Groups groups;
  Spans left(frame, groups), right(others, groups);
  left.slice(groups);
  right.slice(groups);
  Stretches stretches;
  // For each stretch, the number of a row of its group. The rows of `others` are numbered after those of `frame`.
  std::vector<int64_t> owners;
  for (uint32_t group = 0; group < groups.count(); ++group) {
    left.walk(group);
    right.walk(group);
    const int64_t owner = !left.done()   ? left.row()
                          : right.done() ? 0
                                         : static_cast<int64_t>(frame.rows()) + right.row();
    const size_t first = stretches.starts.size();
    while (!left.done() || !right.done()) {
      Spans& spans = right.done() || (!left.done() && left.start() <= right.start()) ? left : right;
      stretches.add(spans, first);
      spans.step();
    }
    owners.resize(stretches.starts.size(), owner);
  }
  Output out(stretches.starts.size());
  out.add("start_ns", copy_of(stretches.starts));
  out.add("end_ns", copy_of(stretches.ends));
  out.add("row", copy_of(owners));
  return out;
}

Output covered(const Input& frame, const Input& stretches) {
  Groups groups;
  Spans spans(frame, groups);
  const auto start = stretches.values<int64_t>("start_ns"), end = stretches.values<int64_t>("end_ns");
  auto group_of = groups.of(stretches);
  auto sums = zeroed<int64_t>(stretches.rows());
  Bits has_times(stretches.rows());
  for (size_t row = 0; row < stretches.rows(); ++row) {
    if (start.null(row) || end.null(row)) {
      group_of[row] = kNone;
    } else {
      has_times.set(row);
      if (end[row] <= start[row]) group_of[row] = kNone;
    }
  }
  spans.slice(groups);
  Slices stretches_of = slices(group_of.get(), stretches.rows(), groups.count());
  Stretches cover;
  for (uint32_t group = 0; group < groups.count(); ++group) {
    if (stretches_of[group].empty()) continue;
    cover.clear();
    for (spans.walk(group); !spans.done(); spans.step()) cover.add(spans);
    const CoveredTime covered(cover);
    for (Row row : stretches_of[group]) {
      constexpr uint64_t kMost = std::numeric_limits<int64_t>::max();
      sums[row] = static_cast<int64_t>(std::min(covered.until(end[row]) - covered.until(start[row]), kMost));
    }
  }
  Output out(stretches.rows());
  out.add("ns", std::move(sums), &has_times);
  return out;
}

Output within(const Input& points, const Input& stretches) {
  Groups groups;
  const auto time = points.values<int64_t>("time_ns");
  const auto start = stretches.values<int64_t>("start_ns"), end = stretches.values<int64_t>("end_ns");
  auto group_of_point = groups.of(points), group_of_stretch = groups.of(stretches);
  for (size_t row = 0; row < points.rows(); ++row) {
    if (time.null(row)) group_of_point[row] = kNone;
  }
  for (size_t row = 0; row < stretches.rows(); ++row) {
    if (start.null(row) || end.null(row)) group_of_stretch[row] = kNone;
  }
  Slices points_of = slices(group_of_point.get(), points.rows(), groups.count());
  Slices stretches_of = slices(group_of_stretch.get(), stretches.rows(), groups.count());
  std::vector<Row> rows, owners;
  for (uint32_t group = 0; group < groups.count(); ++group) {
    const std::span<Row> points_here = points_of[group];
    if (points_here.empty() || stretches_of[group].empty()) continue;
    sort_rows(points_here, [&](Row row) { return time[row]; }, std::less<Row>());
    const auto before = [&](Row row, int64_t at) { return time[row] < at; };
    for (Row stretch : stretches_of[group]) {
      const auto first = std::lower_bound(points_here.begin(), points_here.end(), start[stretch], before);
      const auto past = std::lower_bound(first, points_here.end(), end[stretch], before);
      rows.insert(rows.end(), first, past);
      owners.resize(rows.size(), stretch);
    }
  }
  auto copy = [](const std::vector<Row>& from) {
    auto to = uninitialized<Row>(from.size());
    std::copy(from.begin(), from.end(), to.get());
    return to;
  };
  Output out(rows.size());
  out.add("row", copy(rows));
  out.add("stretch", copy(owners));
  return out;
}

}  // namespace opspan::columns
