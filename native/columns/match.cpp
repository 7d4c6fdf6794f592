// Matches device work to the call that caused it, by process and correlation id. The id is unique only within its
// process.

#include "columns/interface.h"
#include "columns/order.h"

namespace opspan::columns {
namespace {

struct Side {
  Side(const Input& frame, Places& places)
      : id(frame.values<int64_t>("correlation_id")),
        start(frame.values<int64_t>("start_ns")),
        processes(places.processes(frame)),
        rows(frame.rows()) {
    for (size_t row = 0; row < rows; ++row) {
      if (id.null(row)) processes[row] = kNone;
    }
  }
  // A row without a start comes first.
  int64_t time(Row row) const { return start.null(row) ? std::numeric_limits<int64_t>::min() : start[row]; }

  Values<int64_t> id, start;
  Array<uint32_t> processes;
  size_t rows;
};

}  // namespace

Output match(const Input& calls_frame, const Input& work_frame) {
  Places places;
  const Side calls(calls_frame, places), work(work_frame, places);
  auto call_of = uninitialized<Row>(work.rows);
  std::fill_n(call_of.get(), work.rows, kNone);
  Bits ambiguous(work.rows);

  Slices calls_of = slices(calls.processes.get(), calls.rows, places.process_count());
  Slices work_of = slices(work.processes.get(), work.rows, places.process_count());
  for (size_t process = 0; process < calls_of.count(); ++process) {
    const std::span<Row> causes = calls_of[process], effects = work_of[process];
    sort_rows(
        causes, [&](Row row) { return calls.id[row]; },
        [&](Row a, Row b) { return calls.time(a) != calls.time(b) ? calls.time(a) < calls.time(b) : a < b; });
    sort_rows(effects, [&](Row row) { return work.id[row]; }, std::less<Row>());
    auto from = causes.begin(), to = from;  // the calls with the current id are in [from, to)
    for (Row effect : effects) {
      const int64_t id = work.id[effect];
      if (from == to || calls.id[*from] != id) {
        from = to;
        while (from != causes.end() && calls.id[*from] < id) ++from;
        for (to = from; to != causes.end() && calls.id[*to] == id;) ++to;
      }
      if (from == to) continue;
      // If several calls have the id, takes the last call that began before the work. If no call did, takes the first
      // one.
      auto after = std::partition_point(from, to, [&](Row call) { return calls.time(call) <= work.time(effect); });
      call_of[effect] = after == from ? *from : *(after - 1);
      if (to - from > 1) ambiguous.set(effect);
    }
  }
  Output out(work.rows);
  out.add("call", std::move(call_of));
  out.add("ambiguous", std::move(ambiguous));
  return out;
}

}  // namespace opspan::columns
