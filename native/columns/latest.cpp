// Finds, for each point in time, the last row of the same group that is not after the point (is_strict: that is before
// it). Points mostly come in the order of time, so each search starts where the previous search ended.

#include <algorithm>
#include <unordered_map>

#include "columns/interface.h"

namespace opspan::columns {
namespace {

struct Sequence {
  size_t begin = 0, end = 0, near = 0;  // the rows of a group; the row at which its last search ended
};

template <class IsBefore>
size_t look_from(const int64_t* times, const Sequence& sequence, IsBefore is_before) {
  size_t from = sequence.near, to = sequence.near;
  if (from < sequence.end && is_before(times[from])) {
    for (size_t step = 1; to < sequence.end && is_before(times[to]); step *= 2) {
      from = to + 1;
      to = std::min(to + step, sequence.end);
    }
  } else {
    for (size_t step = 1; from > sequence.begin && !is_before(times[from - 1]); step *= 2) {
      to = from - 1;
      from = sequence.begin + (from - sequence.begin > step ? from - sequence.begin - step : 0);
    }
  }
  return static_cast<size_t>(std::partition_point(times + from, times + to, is_before) - times);
}

}  // namespace

Output latest(const Input& points, const Input& candidates, int64_t is_strict) {
  constexpr int64_t kNothing = -1;
  const auto candidate_by = candidates.values<int64_t>("by"), candidate_ns = candidates.values<int64_t>("time_ns");
  const auto by = points.values<int64_t>("by"), time = points.values<int64_t>("time_ns");
  std::unordered_map<int64_t, Sequence> sequences;
  for (size_t begin = 0, end = 0; begin < candidates.rows(); begin = end) {
    while (end < candidates.rows() && candidate_by[end] == candidate_by[begin]) ++end;
    sequences[candidate_by[begin]] = {begin, end, begin};
  }
  auto latest_row = uninitialized<int64_t>(points.rows());
  auto last = sequences.end();  // the group of the previous row, which mostly is also the group of this row
  for (size_t row = 0; row < points.rows(); ++row) {
    latest_row[row] = kNothing;
    if (time.null(row)) continue;
    if (last == sequences.end() || last->first != by[row]) last = sequences.find(by[row]);
    if (last == sequences.end()) continue;
    Sequence& sequence = last->second;
    const int64_t at = time[row];
    sequence.near = is_strict ? look_from(candidate_ns.data, sequence, [&](int64_t one) { return one < at; })
                              : look_from(candidate_ns.data, sequence, [&](int64_t one) { return one <= at; });
    if (sequence.near > sequence.begin) latest_row[row] = static_cast<int64_t>(sequence.near) - 1;
  }
  Output out(points.rows());
  out.add("found", std::move(latest_row));
  return out;
}

}  // namespace opspan::columns
