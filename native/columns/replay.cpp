// Computes new times for work if it is known what the work waited for. Walks forward over a graph, in which each piece
// of work refers to the work that it waited for. docs/analysis.md ("path") has the rules. opspan.analysis.replay makes
// the frames, and tests/analysis/replay_twin.py follows the same rules in plain loops.

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "columns/interface.h"

namespace opspan::columns {
namespace {

using Wide = __int128;  // wide enough for any sum of times
constexpr int64_t kNothing = -1;
enum WaitReason : int64_t {
  kWork = 0,
  kRoom = 3
};  // what the thread waited for at a join; analysis/path_threads.py has the same numbers

// A collective operation, of which each rank runs a part. All parts go on once the last part has begun.
struct Meeting {
  size_t parts = 0;
  std::vector<size_t> parts_there;
};

struct Work {
  Work(const Input& frame, size_t count)
      : bound(frame.values<int64_t>("bound")),
        delay(frame.values<int64_t>("delay_ns")),
        join(frame.values<int64_t>("join")),
        launch(frame.values<int64_t>("launch_ns")),
        other(frame.values<int64_t>("other")),
        next(frame.values<int64_t>("next")),
        took(frame.values<int64_t>("took_ns")),
        meeting(frame.values<int64_t>("meeting")),
        tail(frame.values<int64_t>("tail_ns")),
        is_alone(frame.flags("is_alone")),
        begins(count),
        end(count) {
    for (size_t node = 0; node < count; ++node) {
      if (!meeting.null(node)) ++meetings[meeting[node]].parts;
    }
  }

  // Computes the times of a node. For each join (a wait of a thread), `shift` is how much later the thread leaves the
  // join now than in the trace.
  void run(size_t node, const std::vector<Wide>& shift) {
    Wide time = (join[node] == kNothing ? 0 : shift[join[node]]) + launch[node];
    if (bound[node] == kNothing) {
      time += delay[node];
    } else {
      const Wide then = end[bound[node]] + delay[node];
      time = is_alone[node] ? then : std::max(time, then);
    }
    // If the node waited for one other node, `other` is the row of that node. If it waited for several nodes, `other`
    // is the negative number of the first row of a list. In each row of the list, `other` is one of the nodes, and
    // `next` is the next row.
    if (other[node] >= 0) time = std::max(time, end[other[node]]);
    for (int64_t row = other[node] < kNothing ? -other[node] : kNothing; row != kNothing; row = next[row]) {
      time = std::max(time, end[other[row]]);
    }
    begins[node] = time;
    end[node] = time + took[node];
    if (!meeting.null(node)) come(node);
  }

  // Notes that one part of the collective has begun. The last part sets the ends of all parts.
  void come(size_t node) {
    Meeting& arrived = meetings[meeting[node]];
    arrived.parts_there.push_back(node);
    if (arrived.parts_there.size() < arrived.parts) return;
    Wide last = begins[node];
    for (size_t part : arrived.parts_there) last = std::max(last, begins[part]);
    for (size_t part : arrived.parts_there) end[part] = last + tail[part];
  }

  Values<int64_t> bound, delay, join, launch, other, next, took, meeting, tail;
  Flags is_alone;
  std::vector<Wide> begins, end;
  std::unordered_map<int64_t, Meeting> meetings;
};

int64_t fitting(Wide time) {
  constexpr Wide least = std::numeric_limits<int64_t>::min(), most = std::numeric_limits<int64_t>::max();
  return static_cast<int64_t>(std::clamp(time, least, most));
}

}  // namespace

Output replay(const Input& frame, const Input& joins, int64_t number) {
  const size_t count = static_cast<size_t>(number);
  Work work(frame, count);
  const auto in_order = joins.values<int64_t>("in_order"), between = joins.values<int64_t>("work_between");
  const auto what = joins.values<int64_t>("what"), of_work = joins.values<int64_t>("work");
  const auto entry = joins.values<int64_t>("entry"), target = joins.values<int64_t>("target_ns");
  const auto lag = joins.values<int64_t>("lag_ns"), own_entry = joins.values<int64_t>("own_entry");
  const auto own = joins.values<int64_t>("own_ns"), clock = joins.values<int64_t>("clock_ns");
  const auto has_own = joins.flags("has_own"), is_free = joins.flags("is_free");
  const auto binds = joins.flags("binds"), is_first = joins.flags("is_first");

  std::vector<Wide> at(joins.rows()), shift(joins.rows());
  auto shifted = [&](int64_t join) { return join == kNothing ? Wide{0} : shift[join]; };
  size_t next = 0;
  for (size_t nth = 0; nth < joins.rows(); ++nth) {
    for (const size_t until = next + between[nth]; next < until; ++next) work.run(next, shift);
    const size_t row = static_cast<size_t>(in_order[nth]);
    Wide by = shifted(entry[row]) + target[row];
    if (is_free[row]) {
      by = std::numeric_limits<int64_t>::min();
    } else if (what[row] == kWork) {
      by = work.end[of_work[row]];
    } else if (what[row] == kRoom) {
      by = work.begins[of_work[row]];
    }
    const int64_t before = is_first[row] ? kNothing : in_order[nth] - 1;
    // If `binds` is false, this wait did not decide when the thread went on in the trace. So the thread's time
    // continues from the previous join, unless the event that it waits for comes later now.
    Wide time = binds[row] ? by + lag[row] : by;
    const Wide then = binds[row] ? shifted(own_entry[row]) + own[row] : shifted(before) + clock[row];
    if (has_own[row] || !binds[row]) time = std::max(time, then);
    if (before != kNothing) time = std::max(time, at[before]);
    at[row] = time;
    shift[row] = time - clock[row];
  }
  for (; next < count; ++next) work.run(next, shift);

  auto begins = uninitialized<int64_t>(count + joins.rows()), end = uninitialized<int64_t>(count + joins.rows());
  for (size_t row = 0; row < count; ++row) {
    begins[row] = fitting(work.begins[row]);
    end[row] = fitting(work.end[row]);
  }
  for (size_t row = 0; row < joins.rows(); ++row) {
    begins[count + row] = fitting(at[row]);
    end[count + row] = fitting(shift[row]);
  }
  Output out(count + joins.rows());
  out.add("begun_ns", std::move(begins));
  out.add("end_ns", std::move(end));
  return out;
}

}  // namespace opspan::columns
