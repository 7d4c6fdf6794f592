// Cuts stretches of time on threads into pieces, at each begin and end of a span on the same thread. A span either is a
// range or has a kind. A piece gets the innermost range and the highest kind that are open during it. If no kind is
// open, the piece gets the kind of its stretch. If the thread is not known, it gets the range of its stretch too.
// Stretches may overlap.

#include <array>
#include <queue>

#include "columns/interface.h"
#include "columns/order.h"

namespace opspan::columns {
namespace {

using Kind = uint8_t;
constexpr size_t kKinds = 16;
constexpr Kind kNoKind = kKinds;
constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();

// A change on a thread: the range and the kind that are open from `time` on.
struct Change {
  int64_t time;
  Row range;
  Kind kind;
};

struct SpanColumns {
  explicit SpanColumns(const Input& frame)
      : start(frame.values<int64_t>("start_ns")),
        end(frame.values<int64_t>("end_ns")),
        kind(frame.values<uint8_t>("kind")),
        is_async(frame.flags("is_async")) {}
  bool takes_time(Row row) const { return !end.null(row) && end[row] > start[row]; }
  Values<int64_t> start, end;
  Values<uint8_t> kind;
  Flags is_async;
};

// The ends of open spans. A stack holds the ends of nested spans, and a heap holds all other ends.
class Ends {
 public:
  void push(int64_t end) {
    if (nested_.empty() || end <= nested_.back()) {
      nested_.push_back(end);
    } else {
      others_.push(end);
    }
  }
  bool empty() const { return nested_.empty() && others_.empty(); }
  int64_t next() const { return nested_first() ? nested_.back() : others_.top(); }
  void drop(int64_t until) {
    while (!nested_.empty() && nested_.back() <= until) nested_.pop_back();
    while (!others_.empty() && others_.top() <= until) others_.pop();
  }

 private:
  bool nested_first() const { return others_.empty() || (!nested_.empty() && nested_.back() <= others_.top()); }
  std::vector<int64_t> nested_;
  std::priority_queue<int64_t, std::vector<int64_t>, std::greater<>> others_;
};

// Finds the changes on one thread. The first change is at the earliest possible time. `rows` are the spans of the
// thread, in any order.
class Sweep {
 public:
  Sweep(const SpanColumns& spans, std::vector<Change>& out) : spans_(spans), out_(out) { until_.fill(kLeast); }

  void run(std::span<Row> rows) {
    auto with_start = std::stable_partition(rows.begin(), rows.end(), [&](Row row) { return !spans_.start.null(row); });
    const std::span<Row> started(rows.begin(), with_start);
    sort_rows(
        started, [&](Row row) { return spans_.start[row]; },
        [&](Row a, Row b) {
          const bool same = spans_.end[a] == spans_.end[b];
          return same ? a < b : spans_.end[a] > spans_.end[b];
        });
    // A span that has an end but no start, or that ends before it starts, occurs only in a damaged file. Its end is a
    // cut.
    for (Row row : rows) {
      if (!spans_.end.null(row) && (spans_.start.null(row) || spans_.end[row] < spans_.start[row])) {
        ends_.push(spans_.end[row]);
      }
    }
    out_.push_back({kLeast, kNone, kNoKind});
    auto next = started.begin();
    while (next != started.end() || !ends_.empty()) {
      int64_t now = next != started.end() ? spans_.start[*next] : ends_.next();
      if (!ends_.empty()) now = std::min(now, ends_.next());
      ends_.drop(now);
      for (; next != started.end() && spans_.start[*next] == now; ++next) open(*next);
      const Change change{now, innermost(now), highest(now)};
      if (out_.back().time == now) {
        out_.back() = change;
      } else {
        out_.push_back(change);
      }
    }
  }

 private:
  void open(Row row) {
    if (!spans_.takes_time(row)) return;
    ends_.push(spans_.end[row]);
    if (spans_.kind.null(row)) {
      std::vector<Row>& stack = spans_.is_async[row] ? async_ : nested_;
      top(stack, spans_.start[row]);  // pops the ended spans on top of the stack
      stack.push_back(row);
    } else {
      const size_t kind = std::min<size_t>(spans_.kind[row], kKinds - 1);
      kinds_ = std::max(kinds_, kind + 1);
      until_[kind] = std::max(until_[kind], spans_.end[row]);
    }
  }
  Row top(std::vector<Row>& stack, int64_t at) const {
    while (!stack.empty() && spans_.end[stack.back()] <= at) stack.pop_back();
    return stack.empty() ? kNone : stack.back();
  }
  Row innermost(int64_t at) {
    const Row nested = top(nested_, at);
    return nested != kNone ? nested : top(async_, at);
  }
  Kind highest(int64_t at) const {
    for (size_t kind = kinds_; kind-- > 0;) {
      if (until_[kind] > at) return static_cast<Kind>(kind);
    }
    return kNoKind;
  }

  const SpanColumns& spans_;
  std::vector<Change>& out_;
  std::vector<Row> nested_, async_;  // stacks of open spans; spans below the top may have ended
  std::array<int64_t, kKinds> until_{};
  size_t kinds_ = 0;  // highest number of a kind that was open so far, plus 1
  Ends ends_;
};

// Indexes of the changes that matter for a stretch. `first` is the change that is valid at the start of the stretch.
// The changes after `first` and before `past` cut the stretch.
struct Cuts {
  size_t first = 0, past = 0;
};

}  // namespace

Output cut(const Input& frame, const Input& spans_frame) {
  const size_t count = frame.rows();
  const auto start = frame.values<int64_t>("start_ns"), end = frame.values<int64_t>("end_ns");
  const auto own_range = frame.values<Row>("range");
  const auto own_kind = frame.values<uint8_t>("kind");
  const SpanColumns spans(spans_frame);
  Places places;
  auto stretch_threads = places.threads(frame), span_threads = places.threads(spans_frame);
  auto is_empty = [&](size_t row) { return start.null(row) || end.null(row) || end[row] <= start[row]; };
  for (size_t row = 0; row < count; ++row) {
    if (is_empty(row)) stretch_threads[row] = kNone;
  }
  Slices stretches_of = slices(stretch_threads.get(), count, places.thread_count());
  Slices spans_of = slices(span_threads.get(), spans_frame.rows(), places.thread_count());

  std::vector<Change> changes;
  changes.reserve(2 * spans_frame.rows() + stretches_of.count());
  std::vector<Cuts> cuts(count);
  for (size_t thread = 0; thread < stretches_of.count(); ++thread) {
    const std::span<Row> stretches = stretches_of[thread];
    if (stretches.empty()) continue;
    size_t at = changes.size();
    Sweep(spans, changes).run(spans_of[thread]);
    sort_rows(stretches, [&](Row row) { return start[row]; }, std::less<Row>());
    for (Row row : stretches) {
      while (at + 1 < changes.size() && changes[at + 1].time <= start[row]) ++at;
      size_t past = at + 1;
      while (past < changes.size() && changes[past].time < end[row]) ++past;
      cuts[row] = {at, past};
    }
  }

  size_t total = 0;
  for (size_t row = 0; row < count; ++row) {
    if (!is_empty(row)) total += std::max<size_t>(cuts[row].past - cuts[row].first, 1);
  }
  auto stretch = uninitialized<Row>(total), range = uninitialized<Row>(total);
  auto begins = uninitialized<int64_t>(total), ends = uninitialized<int64_t>(total);
  auto kind = uninitialized<uint8_t>(total);
  size_t piece = 0;
  for (size_t row = 0; row < count; ++row) {
    if (is_empty(row)) continue;
    const size_t first = piece;
    auto add = [&](int64_t begin, Row its_range, Kind its_kind) {
      if (piece > first) ends[piece - 1] = begin;
      stretch[piece] = static_cast<Row>(row);
      begins[piece] = begin;
      range[piece] = its_range;
      kind[piece++] = its_kind != kNoKind || own_kind.null(row) ? its_kind : own_kind[row];
    };
    if (cuts[row].past == 0) add(start[row], own_range.null(row) ? kNone : own_range[row], kNoKind);
    for (size_t at = cuts[row].first; at < cuts[row].past; ++at) {
      add(std::max(start[row], changes[at].time), changes[at].range, changes[at].kind);
    }
    ends[piece - 1] = end[row];
  }
  Output out(total);
  out.add("stretch", std::move(stretch));
  out.add("start_ns", std::move(begins));
  out.add("end_ns", std::move(ends));
  out.add("range", std::move(range));
  out.add("kind", std::move(kind));
  return out;
}

}  // namespace opspan::columns
