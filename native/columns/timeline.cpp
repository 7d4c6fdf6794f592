// Turns slices of tracks into begins and ends in the order of time. It is for viewers that keep a stack of open slices
// for each track, so that an end closes the slice that began last. A slice that overlaps another one in part goes to a
// lane beside the track, and so does a slice with `is_apart`. The slices of a lane do not overlap.
//
//   track 1: [0, 10] [2, 5] [4, 12]   ->   begin 0, begin 1, begin 2 on lane 1, end 1, end 0, end 2 on lane 1
//
// If several events have the same time, the ends of slices that began earlier come first. Then come the begins, with
// the longest slice first. If slices are equal, the slice of the first row is the outermost.

#include <queue>

#include "columns/columns.h"
#include "columns/interface.h"
#include "columns/order.h"

namespace opspan::columns {
namespace {

class Timeline {
 public:
  explicit Timeline(const Input& frame)
      : track_(frame.values<uint32_t>("track")),
        start_(frame.values<int64_t>("start_ns")),
        end_(frame.values<int64_t>("end_ns")),
        is_mark_(frame.flags("is_mark")),
        is_apart_(frame.flags("is_apart")),
        count_(frame.rows()),
        lanes_(zeroed<uint32_t>(frame.rows())) {
    // An event is a number: its row times 2, plus 1 if the event is an end.
    if (count_ >= kNone / 4) throw BadInput("too many slices for one timeline");
    for (const auto* times : {&start_, &end_}) {
      for (size_t row = 0; row < count_; ++row) {
        if (times->null(row)) throw BadInput("a slice has no time");
      }
    }
    events_.reserve(2 * count_);
  }

  void walk() {
    uint32_t tracks = 0;
    for (size_t row = 0; row < count_; ++row) tracks = std::max(tracks, track_[row] + 1);
    Slices by_track = slices(track_.data, count_, tracks);
    for (size_t track = 0; track < by_track.count(); ++track) walk(by_track[track]);
    sort();
  }

  Output result() {
    const size_t count = order_.size();
    auto rows = uninitialized<uint32_t>(count), lanes = uninitialized<uint32_t>(count);
    Bits is_end(count);
    for (size_t at = 0; at < count; ++at) {
      const uint32_t event = events_[order_[at]];
      rows[at] = event / 2;
      lanes[at] = lanes_[event / 2];
      if (event % 2 == 1) is_end.set(at);
    }
    Output out(count);
    out.add("row", std::move(rows));
    out.add("lane", std::move(lanes));
    out.add("is_end", std::move(is_end));
    return out;
  }

 private:
  int64_t end_of(Row row) const { return std::max(start_[row], end_[row]); }

  void begin(Row row) { events_.push_back(2 * row); }
  void end(Row row) { events_.push_back(2 * row + 1); }

  void walk(std::span<Row> rows) {
    sort_rows(
        rows, [&](Row row) { return start_[row]; },
        [&](Row a, Row b) { return end_of(a) != end_of(b) ? end_of(a) > end_of(b) : a < b; });
    std::vector<Row> open, beside;
    for (const Row row : rows) {
      while (!open.empty() && end_of(open.back()) <= start_[row]) {
        end(open.back());
        open.pop_back();
      }
      if (is_mark_[row]) {
        begin(row);
      } else if (is_apart_[row] || (!open.empty() && end_of(open.back()) < end_of(row))) {
        beside.push_back(row);
      } else {
        begin(row);
        open.push_back(row);
      }
    }
    for (; !open.empty(); open.pop_back()) end(open.back());
    put_beside(beside);
  }

  // Puts each slice on the lowest lane that is free when the slice begins.
  void put_beside(const std::vector<Row>& rows) {
    using Lane = std::pair<int64_t, uint32_t>;
    // The lane that will be free first is on top.
    std::priority_queue<Lane, std::vector<Lane>, std::greater<>> busy_lanes;
    std::priority_queue<uint32_t, std::vector<uint32_t>, std::greater<>> free_lanes;
    uint32_t lanes = 0;
    for (const Row row : rows) {
      for (; !busy_lanes.empty() && busy_lanes.top().first <= start_[row]; busy_lanes.pop())
        free_lanes.push(busy_lanes.top().second);
      if (free_lanes.empty()) free_lanes.push(++lanes);
      lanes_[row] = free_lanes.top();
      free_lanes.pop();
      busy_lanes.emplace(end_of(row), lanes_[row]);
      begin(row);
      end(row);
    }
  }

  int64_t time(Row at) const {
    const uint32_t event = events_[at];
    return event % 2 == 1 ? end_of(event / 2) : start_[event / 2];
  }

  // Sorts by time. Events with the same time keep the order in which they were added, which is right within a track.
  void sort() {
    order_.resize(events_.size());
    for (size_t at = 0; at < order_.size(); ++at) order_[at] = static_cast<Row>(at);
    sort_rows(std::span<Row>(order_), [&](Row at) { return time(at); }, [](Row a, Row b) { return a < b; });
  }

  Values<uint32_t> track_;
  Values<int64_t> start_, end_;
  Flags is_mark_, is_apart_;
  size_t count_;
  Array<uint32_t> lanes_;
  std::vector<uint32_t> events_;
  std::vector<Row> order_;
};

}  // namespace

Output timeline(const Input& frame) {
  Timeline timeline(frame);
  timeline.walk();
  return timeline.result();
}

}  // namespace opspan::columns
