// Finds the process, thread or group of each row, and sorts rows. Most functions start with these two steps.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <span>

#include "columns/arrow.h"

namespace opspan::columns {

// Gives numbers to 64-bit keys, from 0 on, in the order in which they are first seen. It is fast if a key is the same
// as the previous key, as most keys are.
class Numbering {
 public:
  Numbering() : slots_(kFirstSlots, kNone) {}
  uint32_t number(uint64_t key);
  uint32_t count() const { return static_cast<uint32_t>(keys_.size()); }

 private:
  static constexpr size_t kFirstSlots = 64;
  void grow();
  size_t slot_of(uint64_t key) const {
    key *= 0x9e3779b97f4a7c15u;  // the golden ratio spreads keys that come in sequence
    return (key ^ (key >> 32)) & (slots_.size() - 1);
  }

  std::vector<uint32_t> slots_;
  std::vector<uint64_t> keys_;
  uint64_t last_key_ = 0;
  uint32_t last_ = kNone;
};

// Gives numbers to processes and threads. A process or thread has the same number in all frames that one object reads.
// Null is a value like any other.
class Places {
 public:
  // Both functions return one number for each row. `processes` numbers the pairs (rank, pid). `threads` numbers the
  // triples (rank, pid, tid).
  Array<uint32_t> processes(const Input& frame);
  Array<uint32_t> threads(const Input& frame);
  // Returns the number of the thread of a process that has this tid. The tid need not be in any row.
  uint32_t thread(uint32_t process, int64_t tid);
  uint32_t process_count() const { return processes_.count(); }
  uint32_t thread_count() const { return threads_.count(); }

 private:
  struct Reader;
  uint32_t process(const Reader& rows, size_t row);
  uint32_t tid(bool null, int64_t value);

  Numbering ranks_, pids_, tids_, processes_, threads_;
};

// Gives numbers to groups of rows, in the order in which they are first seen. A group has the same number in all frames
// that one object reads. Rows of one group have the same values in the columns by0, by1, ...; null is a value like any
// other. Without these columns, all rows are one group.
class Groups {
 public:
  Array<uint32_t> of(const Input& frame);
  uint32_t count() const { return levels_.empty() ? 1 : levels_.back().pairs.count(); }

 private:
  // One of the columns by0, by1, ... and the groups that this column and all columns before it make. A group is a pair:
  // a group of the level before, and a value of this column.
  struct Level {
    Numbering values, pairs;
  };
  std::vector<Level> levels_;
};

// Rows in slices, one slice for each group. The rows of a slice keep their order. A row whose group is kNone is in no
// slice.
struct Slices {
  Array<Row> rows;
  std::vector<size_t> starts;  // where each group's slice begins, and last where the last slice ends
  std::span<Row> operator[](size_t group) { return {rows.get() + starts[group], rows.get() + starts[group + 1]}; }
  size_t count() const { return starts.size() - 1; }
};

Slices slices(const uint32_t* groups, size_t rows, size_t group_count);

// Turns signed numbers into unsigned numbers that have the same order.
inline uint64_t ordered(int64_t value) { return static_cast<uint64_t>(value) ^ (uint64_t{1} << 63); }

struct KeyedRow {
  uint64_t key;
  Row row;
};

void radix_sort(std::span<KeyedRow> items);

// Sorts rows by the high bits of their keys. Returns, for each value of these bits, where its rows end. Rows with equal
// bits keep their order.
template <class Key>
std::vector<size_t> partition_rows(std::span<Row> rows, Key key) {
  constexpr int kBits = 10;
  uint64_t low = ~uint64_t{0}, high = 0;
  for (Row row : rows) {
    low = std::min(low, ordered(key(row)));
    high = std::max(high, ordered(key(row)));
  }
  const int shift = std::max(0, static_cast<int>(std::bit_width(high - low)) - kBits);
  std::vector<size_t> next((size_t{1} << kBits) + 1, 0);
  for (Row row : rows) ++next[((ordered(key(row)) - low) >> shift) + 1];
  for (size_t at = 1; at < next.size(); ++at) next[at] += next[at - 1];
  auto other = uninitialized<Row>(rows.size());
  for (Row row : rows) other[next[(ordered(key(row)) - low) >> shift]++] = row;
  std::copy_n(other.get(), rows.size(), rows.begin());
  next.pop_back();
  return next;
}

// Sorts rows that consist of a few sorted runs, by merging the runs. Returns false if there are too many runs.
template <class Less>
bool merge_runs(std::span<Row> rows, Less less) {
  constexpr size_t kFew = 4;
  std::array<std::span<Row>::iterator, kFew> ends;
  size_t count = 0;
  for (auto from = rows.begin(); from != rows.end(); from = ends[count++]) {
    if (count == kFew) return false;
    ends[count] = std::is_sorted_until(from, rows.end(), less);
  }
  for (size_t run = 1; run < count; ++run) std::inplace_merge(rows.begin(), ends[run - 1], ends[run], less);
  return true;
}

// Sorts rows by key(row), an int64, and rows with equal keys by before(a, b), in linear time. Sorted rows are left as
// they are. If there are many rows, they are partitioned first, because sorting needs 32 bytes of memory for each row,
// and partitioning needs 4.
template <class Key, class Before>
void sort_rows(std::span<Row> rows, Key key, Before before) {
  auto less = [&](Row a, Row b) {
    const int64_t left = key(a), right = key(b);
    return left < right || (left == right && before(a, b));
  };
  if (merge_runs(rows, less)) return;
  constexpr size_t kFew = 256;
  if (rows.size() < kFew) {
    std::sort(rows.begin(), rows.end(), less);
    return;
  }
  constexpr size_t kMany = size_t{1} << 20;
  if (rows.size() > kMany) {
    size_t from = 0;
    for (size_t to : partition_rows(rows, key)) {
      // All rows have one key: there is nothing left to partition.
      if (to - from == rows.size() && key(rows.front()) == key(rows.back())) {
        std::sort(rows.begin(), rows.end(), less);
        return;
      }
      sort_rows(rows.subspan(from, to - from), key, before);
      from = to;
    }
    return;
  }
  const auto keys = uninitialized<KeyedRow>(rows.size());
  const std::span<KeyedRow> items(keys.get(), rows.size());
  for (size_t at = 0; at < rows.size(); ++at) items[at] = {ordered(key(rows[at])), rows[at]};
  radix_sort(items);
  for (size_t at = 0; at < rows.size(); ++at) rows[at] = items[at].row;
  for (size_t from = 0; from < items.size();) {
    size_t to = from + 1;
    while (to < items.size() && items[to].key == items[from].key) ++to;
    if (to - from > 1) std::sort(rows.begin() + static_cast<long>(from), rows.begin() + static_cast<long>(to), before);
    from = to;
  }
}

}  // namespace opspan::columns
