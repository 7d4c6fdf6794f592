// Places the shapes of a timeline, and decides which are drawn together. A lane is a band of the timeline, such as a
// thread or a stream. It has rows, one below the other. docs/page.md explains the rules.
//
//   places: a shape that is nested in another one is placed in a row below it. Shapes that overlap a placed shape in
//           part form the next layer, with all shapes nested in them. A layer is placed below the layer before it. The
//           result has the order in which shapes are drawn: by lane, row, start. If there is no free row, a shape gets
//           the last row.
//   blocks: shapes that are too short to be drawn one by one are drawn together with their neighbours in the same row.

#include <array>

#include "columns/columns.h"
#include "columns/interface.h"
#include "columns/order.h"

namespace opspan::columns {
namespace {

constexpr int kLayers = 17;          // the most layers of a lane
constexpr uint32_t kMostRows = 128;  // the most rows of a lane
constexpr int kStretch = 2;          // a block is about 4 (1 << kStretch) times as long as the longest short shape
constexpr int kLongest = 61;         // the highest exponent of a length; 4 times this length still fits into 63 bits

struct Shapes {
  explicit Shapes(const Input& frame)
      : start(frame.values<int64_t>("start_ns")), length(frame.values<int64_t>("length_ns")) {
    for (size_t row = 0; row < frame.rows(); ++row) {
      if (start.null(row) || length.null(row) || start[row] < 0 || length[row] < 0) {
        throw BadInput("a shape has no time, or one that is negative");
      }
    }
  }
  int64_t end(size_t row) const {
    constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
    return length[row] > kMost - start[row] ? kMost : start[row] + length[row];
  }
  Values<int64_t> start, length;
};

// Finds a row for each shape of a lane. The shapes come in order of their start, the longest first.
void stack_up(const Shapes& shapes, std::span<const Row> lane_shapes, uint32_t last, uint32_t* rows) {
  std::vector<Row> left(lane_shapes.begin(), lane_shapes.end()), overlapping, open;
  uint32_t above = 0;
  for (int layer = 0; layer < kLayers && !left.empty(); ++layer) {
    uint32_t deepest = 0;
    open.clear();
    overlapping.clear();
    for (const Row shape : left) {
      while (!open.empty() && shapes.end(open.back()) <= shapes.start[shape]) open.pop_back();
      if (!open.empty() && shapes.end(open.back()) < shapes.end(shape)) {
        overlapping.push_back(shape);
        continue;
      }
      const uint32_t row = above + static_cast<uint32_t>(open.size());
      rows[shape] = std::min(row, last);
      deepest = std::max(deepest, row);
      open.push_back(shape);
    }
    above = deepest + 1;
    left.swap(overlapping);
  }
  for (const Row shape : left) rows[shape] = last;
}

// Writes the shapes of a lane to `to`, in the order in which they are drawn.
void draw_in_order(const Shapes& shapes, std::span<const Row> lane_shapes, const uint32_t* rows, uint32_t last,
                   Row* to) {
  std::array<size_t, kMostRows + 1> next{};
  for (const Row shape : lane_shapes) ++next[rows[shape] + 1];
  for (uint32_t row = 0; row < last; ++row) next[row + 1] += next[row];
  const size_t crowded = next[last];
  for (const Row shape : lane_shapes) to[next[rows[shape]]++] = shape;
  // Only the last row needs sorting. In any other row, if several shapes have the same start, at most one of them has a
  // length.
  std::sort(to + crowded, to + lane_shapes.size(), [&](Row a, Row b) {
    return shapes.start[a] != shapes.start[b] ? shapes.start[a] < shapes.start[b] : a < b;
  });
}

}  // namespace

Output places(const Input& frame, int64_t rows_of_lane) {
  if (rows_of_lane < 1 || rows_of_lane > kMostRows) throw BadInput("a lane cannot have so many rows");
  const auto last = static_cast<uint32_t>(rows_of_lane - 1);
  const Shapes shapes(frame);
  const auto lanes = frame.values<uint32_t>("lane");
  const size_t count = frame.rows();
  uint32_t lane_count = 0;
  for (size_t row = 0; row < count; ++row) lane_count = std::max(lane_count, lanes[row] + 1);
  Slices by_lane = slices(lanes.data, count, lane_count);
  auto rows = uninitialized<uint32_t>(count), place = uninitialized<uint32_t>(count);
  auto order = uninitialized<Row>(count);
  auto start = uninitialized<int64_t>(count), length = uninitialized<int64_t>(count);
  Bits is_crowded(count);
  for (size_t lane = 0; lane < by_lane.count(); ++lane) {
    const std::span<Row> lane_shapes = by_lane[lane];
    sort_rows(
        lane_shapes, [&](Row row) { return shapes.start[row]; },
        [&](Row a, Row b) { return shapes.end(a) != shapes.end(b) ? shapes.end(a) > shapes.end(b) : a < b; });
    stack_up(shapes, lane_shapes, last, rows.get());
    draw_in_order(shapes, lane_shapes, rows.get(), last, order.get() + by_lane.starts[lane]);
  }
  for (size_t at = 0; at < count; ++at) {
    const Row shape = order[at];
    place[at] = lanes[shape] * static_cast<uint32_t>(rows_of_lane) + rows[shape];
    start[at] = shapes.start[shape];
    length[at] = shapes.length[shape];
    if (rows[shape] == last) is_crowded.set(at);
  }
  Output out(count);
  out.add("shape", std::move(order));
  out.add("place", std::move(place));
  out.add("start_ns", std::move(start));
  out.add("length_ns", std::move(length));
  out.add("is_crowded", std::move(is_crowded));
  return out;
}

namespace {

struct DrawnShapes : Shapes {
  explicit DrawnShapes(const Input& frame)
      : Shapes(frame),
        place(frame.values<uint32_t>("place")),
        is_crowded(frame.flags("is_crowded")),
        count(frame.rows()) {}

  // Returns the smallest n for which no more than `most` shapes have a length of 2**n or more. Returns -1 if there are
  // no more than `most` shapes at all.
  int least_power(size_t most) const {
    std::array<size_t, 65> of_width{};
    size_t kept = 0;
    for (size_t at = 0; at < count; ++at) {
      if (is_crowded[at]) continue;
      ++of_width[static_cast<size_t>(std::bit_width(static_cast<uint64_t>(length[at])))];
      ++kept;
    }
    if (kept <= most) return -1;
    size_t power = 0;
    for (kept -= of_width[0]; kept > most; kept -= of_width[power]) ++power;
    return static_cast<int>(power);
  }

  // Returns the first row of each block, if shapes shorter than 2^power are drawn together.
  std::vector<Row> begins(int power) const {
    const int64_t under = power < 0 ? 0 : int64_t{1} << power;
    const int shift = std::max(power, 0) + kStretch;
    auto stretch = [&](size_t at) { return static_cast<uint64_t>(start[at]) >> shift; };
    std::vector<Row> rows;
    bool was_short = false;
    int64_t until = 0;  // the latest end of the shapes so far that have the same place (lane and row)
    for (size_t at = 0; at < count; ++at) {
      const bool is_short = is_crowded[at] || length[at] < under;
      const bool is_other = at == 0 || place[at] != place[at - 1];
      const bool is_apart = is_other || !is_short || !was_short;
      if (is_apart || (start[at] >= until && stretch(at) != stretch(at - 1))) rows.push_back(static_cast<Row>(at));
      until = is_other ? end(at) : std::max(until, end(at));
      was_short = is_short;
    }
    return rows;
  }

  std::vector<Row> begins_of(size_t most, int64_t* under) const {
    *under = 0;
    bool any_crowded = false;
    for (size_t at = 0; at < count && !any_crowded; ++at) any_crowded = is_crowded[at];
    std::vector<Row> rows;
    if (count <= most && !any_crowded) {
      for (size_t at = 0; at < count; ++at) rows.push_back(static_cast<Row>(at));
      return rows;
    }
    int power = least_power(most);
    for (rows = begins(power); rows.size() > most && power < kLongest; rows = begins(power)) ++power;
    if (power >= 0) *under = int64_t{1} << power;
    return rows;
  }

  Values<uint32_t> place;
  Flags is_crowded;
  size_t count;
};

}  // namespace

Output blocks(const Input& frame, int64_t most) {
  const DrawnShapes shapes(frame);
  int64_t under = 0;
  const std::vector<Row> begins = shapes.begins_of(static_cast<size_t>(std::max<int64_t>(most, 0)), &under);
  auto first = uninitialized<Row>(begins.size()), longest = uninitialized<Row>(begins.size());
  auto count = uninitialized<uint32_t>(begins.size());
  auto length = uninitialized<int64_t>(begins.size()), busy = uninitialized<int64_t>(begins.size());
  auto under_ns = uninitialized<int64_t>(begins.size());
  for (size_t block = 0; block < begins.size(); ++block) {
    const size_t from = begins[block], to = block + 1 < begins.size() ? begins[block + 1] : shapes.count;
    size_t best = from;
    // The shapes of a block are in order of their start. In the last row of a lane they may overlap.
    int64_t until = shapes.start[from], sum = 0;
    for (size_t at = from; at < to; ++at) {
      if (shapes.length[at] > shapes.length[best]) best = at;
      const int64_t end = std::max(until, shapes.end(at));
      sum += end - std::max(until, shapes.start[at]);
      until = end;
    }
    first[block] = static_cast<Row>(from);
    longest[block] = static_cast<Row>(best);
    count[block] = static_cast<uint32_t>(to - from);
    length[block] = to - from == 1 ? shapes.length[from] : until - shapes.start[from];
    busy[block] = sum;
    under_ns[block] = under;
  }
  Output out(begins.size());
  out.add("first", std::move(first));
  out.add("longest", std::move(longest));
  out.add("count", std::move(count));
  out.add("length_ns", std::move(length));
  out.add("busy_ns", std::move(busy));
  out.add("under_ns", std::move(under_ns));
  return out;
}

}  // namespace opspan::columns
