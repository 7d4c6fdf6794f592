// Links each backward range to the forward op that made its autograd node. This op is the last one with the same seq
// that began on the forward thread before the backward range.

#include "columns/interface.h"
#include "columns/order.h"

namespace opspan::columns {
namespace {

// The role of a range. If rows begin at the same time, the row with the higher role comes first, so a backward range
// comes before an op.
enum Role : uint8_t { kNeither, kForward, kBackward, kEngine };
// opspan.analysis.autograd has the same numbers.
enum Link : uint8_t {
  kLinked = 1,
  kSeveralThreads = 2,
  kUsedAgain = 3,
  kNoForward = 4,
  kNoSeq = 5,
  kRoot = 6,
  kByNesting = 7
};

// The most threads whose names are compared for one seq. If there are more threads, the op that began last is taken.
constexpr size_t kMostThreads = 64;

struct Ranges {
  explicit Ranges(const Input& frame)
      : start(frame.values<int64_t>("start_ns")),
        seq(frame.values<int64_t>("seq")),
        forward_tid(frame.values<int64_t>("forward_tid")),
        parent(frame.values<Row>("parent")),
        forward(frame.flags("is_forward")),
        backward(frame.flags("is_backward")),
        engine(frame.flags("is_engine")),
        name(frame.values<uint32_t>("name")) {}

  bool is(Role wanted_op, Row row) const { return has(wanted_op, row) && !seq.null(row) && !start.null(row); }
  Role role(Row row) const {
    return backward[row] ? kBackward : forward[row] ? kForward : engine[row] ? kEngine : kNeither;
  }
  bool has(Role wanted_op, Row row) const { return role(row) == wanted_op; }
  bool knows_thread(Row row) const { return !forward_tid.null(row) && forward_tid[row] != 0; }

  Values<int64_t> start, seq, forward_tid;
  Values<Row> parent;
  Flags forward, backward, engine;
  Values<uint32_t> name;
};

// Facts about the ranges that have a certain name. If a name is not in the list, nothing is known about its ranges.
// They are then treated like ranges that may make nodes.
class Names {
 public:
  explicit Names(const Input& frame) {
    const auto name = frame.values<uint32_t>("name"), op = frame.values<uint32_t>("op");
    const auto makes_node = frame.flags("makes_node"), is_root = frame.flags("is_root");
    for (size_t row = 0; row < frame.rows(); ++row) {
      if (name.null(row)) continue;
      if (name[row] >= facts_.size()) facts_.resize(name[row] + 1);
      facts_[name[row]] = {op.null(row) ? kNone : op[row], makes_node[row], is_root[row]};
    }
  }
  uint32_t op(const Ranges& ranges, Row row) const { return find(ranges, row).op; }
  bool makes_node(const Ranges& ranges, Row row) const { return find(ranges, row).makes_node; }
  bool is_root(const Ranges& ranges, Row row) const { return find(ranges, row).is_root; }

 private:
  struct NameFacts {
    uint32_t op = kNone;
    bool makes_node = true, is_root = false;
  };
  NameFacts find(const Ranges& ranges, Row row) const {
    return !ranges.name.null(row) && ranges.name[row] < facts_.size() ? facts_[ranges.name[row]] : NameFacts();
  }
  std::vector<NameFacts> facts_;  // the index is the name's code
};

// Returns, for each row, how often the seq of its thread has decreased up to that row. The seq of a thread only grows.
// If it decreases, a new thread with the same number and its own seq has begun. If no seq decreases, returns an empty
// array.
Array<uint32_t> eras(const Ranges& ranges, const uint32_t* threads, size_t count, size_t thread_count) {
  auto era = zeroed<uint32_t>(count);
  Slices by_thread = slices(threads, count, thread_count);
  bool any = false;
  for (size_t thread = 0; thread < by_thread.count(); ++thread) {
    const std::span<Row> rows = by_thread[thread];
    sort_rows(
        rows, [&](Row row) { return ranges.start[row]; },
        [&](Row a, Row b) { return ranges.seq[a] != ranges.seq[b] ? ranges.seq[a] < ranges.seq[b] : a < b; });
    for (size_t at = 1; at < rows.size(); ++at) {
      era[rows[at]] = era[rows[at - 1]] + (ranges.seq[rows[at]] < ranges.seq[rows[at - 1]] ? 1 : 0);
      any = any || era[rows[at]] > 0;
    }
  }
  if (!any) return {};
  return era;
}

struct LastOp {  // the last of the forward ops that have the same seq on a thread
  uint32_t group = kNone;
  Row last = kNone;
  bool used_again = false;
};

class Group {  // forward ops of a process with the same seq, as far as they have begun
 public:
  explicit Group(size_t thread_count) : last_ops_(thread_count) {}

  void clear() {
    ++number_;
    threads_.clear();
    latest_ = kNone;
  }

  void add(Row row, uint32_t thread, const Array<uint32_t>& era) {
    LastOp& op = last_ops_[thread];
    if (op.group != number_) {
      op = {number_, row, false};
      threads_.push_back(thread);
    } else {
      op.used_again = op.used_again || (era && era[row] != era[op.last]);
      op.last = row;
    }
    latest_ = thread;
  }

  std::pair<Row, Link> on(uint32_t thread) const {
    const LastOp& op = last_ops_[thread];
    if (op.group != number_) return {kNone, kNoForward};
    return {op.last, op.used_again ? kUsedAgain : kLinked};
  }

  template <class SameName>
  std::pair<Row, Link> on_any(SameName same_name) const {
    if (threads_.empty()) return {kNone, kNoForward};
    if (threads_.size() == 1) return on(threads_[0]);
    uint32_t named = kNone;
    size_t count = 0;
    for (size_t at = 0; at < threads_.size() && threads_.size() <= kMostThreads; ++at) {
      if (!same_name(last_ops_[threads_[at]].last)) continue;
      named = threads_[at];
      ++count;
    }
    if (count == 1) return on(named);
    return {last_ops_[latest_].last, kSeveralThreads};
  }

 private:
  std::vector<LastOp> last_ops_;
  std::vector<uint32_t> threads_;
  uint32_t latest_ = kNone;  // the thread of the op that began last
  uint32_t number_ = 0;
};

// Links the remaining ranges. The engine's ranges have no seq, so each gets the forward op of the first node that runs
// in it. A node that the backward pass itself made has no forward op, even if its seq is that of an op. A parent number
// is ignored if there is no row with this number.
void link_the_rest(const Ranges& ranges, const Names& facts, size_t count, Row* forward, uint8_t* links) {
  for (size_t at = 0; at < count; ++at) {
    const Row row = static_cast<Row>(at);
    if (ranges.has(kBackward, row)) {
      if (facts.is_root(ranges, row)) {
        forward[row] = kNone;
        links[row] = kRoot;
      } else if (links[row] == 0) {
        links[row] = kNoSeq;
      }
    }
    if (forward[row] == kNone || ranges.has(kEngine, row) || ranges.parent.null(row)) continue;
    const Row parent = ranges.parent[row];
    if (parent >= count || !ranges.has(kEngine, parent) || links[parent] == kByNesting) continue;
    forward[parent] = forward[row];
    links[parent] = kByNesting;
  }
  for (size_t at = 0; at < count; ++at) {
    if (links[at] == 0 && ranges.has(kEngine, static_cast<Row>(at))) links[at] = kNoSeq;
  }
}

}  // namespace

Output link(const Input& frame, const Input& names) {
  const size_t count = frame.rows();
  const Ranges ranges(frame);
  const Names facts(names);
  Places places;
  auto processes = places.processes(frame);
  auto threads = places.threads(frame);  // a forward op's own thread, or a backward range's forward thread
  auto candidates = uninitialized<uint32_t>(count);
  for (size_t at = 0; at < count; ++at) {
    const Row row = static_cast<Row>(at);
    const bool is_forward = ranges.is(kForward, row) && threads[row] != kNone && facts.makes_node(ranges, row);
    const bool is_backward = ranges.is(kBackward, row);
    candidates[row] = is_forward ? threads[row] : kNone;
    if (is_backward) {
      const bool is_known = ranges.knows_thread(row);
      threads[row] = is_known ? places.thread(processes[row], ranges.forward_tid[row]) : kNone;
    }
    if (!is_forward && !is_backward) processes[row] = kNone;
  }
  const Array<uint32_t> era = eras(ranges, candidates.get(), count, places.thread_count());
  candidates.reset();

  Slices by_process = slices(processes.get(), count, places.process_count());
  processes.reset();
  auto forward = uninitialized<Row>(count);
  std::fill_n(forward.get(), count, kNone);
  auto links = zeroed<uint8_t>(count);
  Group group(places.thread_count());
  for (size_t process = 0; process < by_process.count(); ++process) {
    const std::span<Row> rows = by_process[process];
    // An op that begins at the same time as a backward range does not count as earlier.
    sort_rows(
        rows, [&](Row row) { return ranges.seq[row]; },
        [&](Row a, Row b) {
          if (ranges.start[a] != ranges.start[b]) return ranges.start[a] < ranges.start[b];
          return ranges.role(a) != ranges.role(b) ? ranges.role(a) > ranges.role(b) : a < b;
        });
    for (size_t at = 0; at < rows.size(); ++at) {
      const Row row = rows[at];
      if (at == 0 || ranges.seq[row] != ranges.seq[rows[at - 1]]) group.clear();
      if (ranges.role(row) == kForward) {
        group.add(row, threads[row], era);
        continue;
      }
      const uint32_t wanted_op = facts.op(ranges, row);
      auto same_name = [&](Row other) { return wanted_op != kNone && facts.op(ranges, other) == wanted_op; };
      const auto [forward_row, link_kind] = threads[row] != kNone ? group.on(threads[row]) : group.on_any(same_name);
      forward[row] = forward_row;
      links[row] = link_kind;
    }
  }
  link_the_rest(ranges, facts, count, forward.get(), links.get());
  Output out(count);
  out.add("forward", std::move(forward));
  out.add("link", std::move(links));
  return out;
}

}  // namespace opspan::columns
