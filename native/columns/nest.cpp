// Makes a tree of the ranges of each thread. docs/analysis.md has the rules; tests/twins.py follows the same rules in
// nested loops.

#include <queue>
#include <unordered_map>

#include "columns/interface.h"
#include "columns/order.h"

namespace opspan::columns {
namespace {

struct Ranges {
  explicit Ranges(const Input& frame)
      : start(frame.values<int64_t>("start_ns")),
        read_end(frame.values<int64_t>("end_ns")),
        domain(frame.values<uint32_t>("domain")),
        is_async(frame.flags("is_async")),
        is_mark(frame.flags("is_mark")),
        end(read_end.data) {}

  bool is_leaf(Row row) const { return is_async[row] || is_mark[row]; }
  bool is_open(Row row) const { return read_end.null(row) && !is_mark[row]; }
  // The difference is exact, because an end is never before its start.
  uint64_t duration(Row row) const { return static_cast<uint64_t>(end[row]) - static_cast<uint64_t>(start[row]); }
  // Returns true if all ranges have a start and a valid end, and none is a mark. Then the column of ends is used in
  // place.
  bool has_all_ends(size_t count) const {
    for (size_t at = 0; at < count; ++at) {
      const Row row = static_cast<Row>(at);
      if (start.null(row) || read_end.null(row) || is_mark[row] || read_end[row] < start[row]) return false;
    }
    return true;
  }
  void find_ends(size_t count, int64_t trace_end) {
    own_end = uninitialized<int64_t>(count);
    end = own_end.get();
    for (size_t at = 0; at < count; ++at) {
      const Row row = static_cast<Row>(at);
      const int64_t begin = start.null(row) ? std::numeric_limits<int64_t>::min() : start[row];
      const int64_t end_ns = is_mark[row] ? begin : read_end.null(row) ? trace_end : read_end[row];
      own_end[row] = std::max(begin, end_ns);
    }
  }
  bool before(Row a, Row b) const { return end[a] != end[b] ? end[a] > end[b] : a < b; }
  void sort(std::span<Row> rows) const {
    sort_rows(rows, [&](Row row) { return start[row]; }, [&](Row a, Row b) { return before(a, b); });
  }

  Values<int64_t> start, read_end;
  Values<uint32_t> domain;
  Flags is_async, is_mark;
  const int64_t* end;
  Array<int64_t> own_end;
};

// Ends ranges whose pop was lost. If a range without an end began inside another range of the same stack, it gets the
// end of that range, unless its end so far is earlier. Returns whether an end changed. `rows` must be in the order of
// their start.
bool end_lost_ranges(Ranges& ranges, std::span<const Row> rows) {
  using Ends = std::priority_queue<int64_t, std::vector<int64_t>, std::greater<>>;
  std::unordered_map<uint32_t, Ends> stacks;
  bool has_changed = false;
  auto domain = [&](Row row) { return ranges.domain.null(row) ? kNone : ranges.domain[row]; };
  for (size_t from = 0, to = 0; from < rows.size(); from = to) {
    const int64_t start = ranges.start[rows[from]];
    while (to < rows.size() && ranges.start[rows[to]] == start) ++to;
    for (Row row : rows.subspan(from, to - from)) {
      if (ranges.is_leaf(row) || !ranges.is_open(row)) continue;
      Ends& ends = stacks[domain(row)];
      while (!ends.empty() && ends.top() <= start) ends.pop();
      if (ends.empty() || ends.top() >= ranges.end[row]) continue;
      ranges.own_end[row] = ends.top();
      has_changed = true;
    }
    for (Row row : rows.subspan(from, to - from)) {
      if (!ranges.is_leaf(row) && !ranges.is_open(row)) stacks[domain(row)].push(ranges.end[row]);
    }
  }
  return has_changed;
}

struct Tree {
  explicit Tree(size_t rows)
      : parent(uninitialized<Row>(rows)),
        depth(uninitialized<Row>(rows)),
        self(uninitialized<int64_t>(rows)),
        overlaps(rows) {}

  Array<Row> parent;
  Array<uint32_t> depth;
  Array<int64_t> self;  // an unsigned number in int64 bits, until the last loop of nest()
  Bits overlaps;
};

void grow(Tree& tree, const Ranges& ranges, std::span<const Row> rows) {
  std::vector<Row> stack;  // open ranges; each is inside the range before it
  for (Row row : rows) {
    const int64_t start = ranges.start[row], end = ranges.end[row];
    while (!stack.empty() && ranges.end[stack.back()] <= start) stack.pop_back();
    const bool is_contained = stack.empty() || ranges.end[stack.back()] >= end;
    auto above = stack.end();
    if (!is_contained) {
      above = std::partition_point(stack.begin(), stack.end(), [&](Row outer) { return ranges.end[outer] >= end; });
    }
    const Row parent = above == stack.begin() ? kNone : *(above - 1);
    tree.parent[row] = parent;
    tree.depth[row] = parent == kNone ? 0 : tree.depth[parent] + 1;
    tree.self[row] = static_cast<int64_t>(ranges.duration(row));
    if (ranges.is_leaf(row)) continue;
    if (!is_contained) {
      tree.overlaps.set(row);
      continue;
    }
    if (parent != kNone) {
      const uint64_t left = static_cast<uint64_t>(tree.self[parent]) - ranges.duration(row);
      tree.self[parent] = static_cast<int64_t>(left);
    }
    stack.push_back(row);
  }
}

}  // namespace

Output nest(const Input& frame, int64_t trace_end) {
  const size_t count = frame.rows();
  Ranges ranges(frame);
  Places places;
  auto threads = places.threads(frame);

  Bits is_open(count), is_async(count), has_end(count), has_self(count);
  const bool has_all_ends = ranges.has_all_ends(count);
  if (!has_all_ends) {
    ranges.find_ends(count, trace_end);
    for (size_t at = 0; at < count; ++at) {
      const Row row = static_cast<Row>(at);
      if (ranges.start.null(row)) threads[row] = kNone;
      if (ranges.is_open(row)) is_open.set(row);
      if (!ranges.is_mark[row]) has_end.set(row);
    }
  }

  Tree tree(count);
  Slices by_thread = slices(threads.get(), count, places.thread_count());
  for (size_t thread = 0; thread < by_thread.count(); ++thread) {
    const std::span<Row> rows = by_thread[thread];
    ranges.sort(rows);
    const bool has_lost = !has_all_ends && std::any_of(rows.begin(), rows.end(),
                                                       [&](Row row) { return is_open[row] && !ranges.is_leaf(row); });
    if (has_lost && end_lost_ranges(ranges, rows)) ranges.sort(rows);
    grow(tree, ranges, rows);
  }

  for (size_t at = 0; at < count; ++at) {
    const Row row = static_cast<Row>(at);
    if (threads[row] == kNone) {
      tree.parent[row] = kNone;
      tree.depth[row] = 0;
      tree.self[row] = 0;
    }
    const bool is_placed = threads[row] != kNone;
    const bool is_apart = !ranges.is_mark[row] && (ranges.is_async[row] || !is_placed || tree.overlaps[row]);
    if (is_apart) is_async.set(row);
    if (is_placed && !is_apart) has_self.set(row);
    // A number that is negative as int64 means a time of more than 292 years, which only a damaged file has.
    if (tree.self[row] < 0) tree.self[row] = std::numeric_limits<int64_t>::max();
  }

  Output out(count);
  out.add("parent", std::move(tree.parent));
  out.add("depth", std::move(tree.depth));
  out.add("self_ns", std::move(tree.self), &has_self);
  if (!has_all_ends) out.add("end_ns", std::move(ranges.own_end), &has_end);
  out.add("is_open", std::move(is_open));
  out.add("is_async", std::move(is_async));
  out.add("overlaps", std::move(tree.overlaps));
  return out;
}

}  // namespace opspan::columns
