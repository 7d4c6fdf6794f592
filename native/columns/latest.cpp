// Finds the last row of their group that is not after points in time. Points mostly come in order of time, so each
// search starts where the one before ended.

#include <algorithm>
#include <unordered_map>

#include "columns/interface.h"

namespace opspan::columns {
namespace {

struct Sequence {
  size_t begin = 0, end = 0, near = 0;  // near: the first row after the last point
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

Output latest(const Input& asked, const Input& known, int64_t is_strict) {
  constexpr int64_t kNothing = -1;
  const auto known_by = known.values<int64_t>("by"), known_ns = known.values<int64_t>("time_ns");
  const auto by = asked.values<int64_t>("by"), time = asked.values<int64_t>("time_ns");
  std::unordered_map<int64_t, Sequence> sequences;
  for (size_t begin = 0, end = 0; begin < known.rows(); begin = end) {
    while (end < known.rows() && known_by[end] == known_by[begin]) ++end;
    sequences[known_by[begin]] = {begin, end, begin};
  }
  auto found = uninitialized<int64_t>(asked.rows());
  auto last = sequences.end();  // most rows are in the group of the row before
  for (size_t row = 0; row < asked.rows(); ++row) {
    found[row] = kNothing;
    if (time.null(row)) continue;
    if (last == sequences.end() || last->first != by[row]) last = sequences.find(by[row]);
    if (last == sequences.end()) continue;
    Sequence& sequence = last->second;
    const int64_t at = time[row];
    sequence.near = is_strict ? look_from(known_ns.data, sequence, [&](int64_t one) { return one < at; })
                              : look_from(known_ns.data, sequence, [&](int64_t one) { return one <= at; });
    if (sequence.near > sequence.begin) found[row] = static_cast<int64_t>(sequence.near) - 1;
  }
  Output out(asked.rows());
  out.add("found", std::move(found));
  return out;
}

}  // namespace opspan::columns
