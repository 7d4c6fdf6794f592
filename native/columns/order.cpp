#include "columns/order.h"

#include <array>

namespace opspan::columns {

uint32_t Numbering::number(uint64_t key) {
  if (last_ != kNone && key == last_key_) return last_;
  size_t slot = slot_of(key);
  while (slots_[slot] != kNone && keys_[slots_[slot]] != key) slot = (slot + 1) & (slots_.size() - 1);
  if (slots_[slot] == kNone) {
    slots_[slot] = count();
    keys_.push_back(key);
    last_ = slots_[slot];
    if (keys_.size() * 2 > slots_.size()) grow();
  } else {
    last_ = slots_[slot];
  }
  last_key_ = key;
  return last_;
}

void Numbering::grow() {
  slots_.assign(slots_.size() * 2, kNone);
  for (uint32_t number = 0; number < count(); ++number) {
    size_t slot = slot_of(keys_[number]);
    while (slots_[slot] != kNone) slot = (slot + 1) & (slots_.size() - 1);
    slots_[slot] = number;
  }
}

namespace {
// Returns 0 for null. Otherwise returns the number that `numbering` gives the value, plus 1.
uint64_t with_null(Numbering& numbering, bool is_null, uint64_t value) {
  return is_null ? 0 : uint64_t{1} + numbering.number(value);
}
uint64_t pair(uint64_t high, uint64_t low) { return high << 32 | low; }
}  // namespace

struct Places::Reader {
  explicit Reader(const Input& frame) : one_rank(!frame.has("rank")), one_pid(!frame.has("pid")) {
    if (!one_rank) rank = frame.values<int32_t>("rank");
    if (!one_pid) pid = frame.values<int64_t>("pid");
  }
  // Returns true if this row and the previous row are of the same process. Most rows are, and need no look-up of their
  // process.
  bool is_repeated(size_t row) const {
    return row > 0 && (one_rank || rank.is_repeated(row)) && (one_pid || pid.is_repeated(row));
  }

  // one_rank: the frame has no column `rank`, so all rows have the same rank. one_pid: the same for `pid`.
  bool one_rank, one_pid;
  Values<int32_t> rank;
  Values<int64_t> pid;
};

uint32_t Places::process(const Reader& rows, size_t row) {
  const bool no_rank = rows.one_rank || rows.rank.null(row), no_pid = rows.one_pid || rows.pid.null(row);
  const uint64_t rank = with_null(ranks_, no_rank, no_rank ? 0 : static_cast<uint64_t>(rows.rank[row]));
  const uint64_t pid = with_null(pids_, no_pid, no_pid ? 0 : static_cast<uint64_t>(rows.pid[row]));
  return processes_.number(pair(rank, pid));
}

Array<uint32_t> Places::processes(const Input& frame) {
  const Reader reader(frame);
  auto numbers = uninitialized<uint32_t>(frame.rows());
  for (size_t row = 0; row < frame.rows(); ++row) {
    numbers[row] = reader.is_repeated(row) ? numbers[row - 1] : process(reader, row);
  }
  return numbers;
}

uint32_t Places::thread(uint32_t process, int64_t tid) {
  return threads_.number(pair(process, with_null(tids_, false, static_cast<uint64_t>(tid))));
}

Array<uint32_t> Places::threads(const Input& frame) {
  const Reader reader(frame);
  const auto tid = frame.values<int64_t>("tid");
  auto numbers = uninitialized<uint32_t>(frame.rows());
  for (size_t row = 0; row < frame.rows(); ++row) {
    if (reader.is_repeated(row) && tid.is_repeated(row)) {
      numbers[row] = numbers[row - 1];
    } else {
      // A row without a known thread gets no number, because two of these rows may be of different threads.
      numbers[row] = tid.null(row) ? kNone : thread(process(reader, row), tid[row]);
    }
  }
  return numbers;
}

Array<uint32_t> Groups::of(const Input& frame) {
  auto numbers = zeroed<uint32_t>(frame.rows());
  auto name = [](size_t level) { return "by" + std::to_string(level); };
  for (size_t level = 0; frame.has(name(level).c_str()); ++level) {
    if (level == levels_.size()) levels_.emplace_back();
    const auto values = frame.values<int64_t>(name(level).c_str());
    Level& of = levels_[level];
    for (size_t row = 0; row < frame.rows(); ++row) {
      const bool is_null = values.null(row);
      const uint64_t value = with_null(of.values, is_null, is_null ? 0 : static_cast<uint64_t>(values[row]));
      numbers[row] = of.pairs.number(pair(numbers[row], value));
    }
  }
  return numbers;
}

Slices slices(const uint32_t* groups, size_t rows, size_t group_count) {
  Slices result;
  result.starts.assign(group_count + 1, 0);
  for (size_t row = 0; row < rows; ++row) {
    if (groups[row] != kNone) ++result.starts[groups[row] + 1];
  }
  for (size_t group = 0; group < group_count; ++group) result.starts[group + 1] += result.starts[group];
  result.rows = uninitialized<Row>(result.starts[group_count]);
  std::vector<size_t> next(result.starts.begin(), result.starts.end() - 1);
  for (size_t row = 0; row < rows; ++row) {
    if (groups[row] != kNone) result.rows[next[groups[row]]++] = static_cast<Row>(row);
  }
  return result;
}

void radix_sort(std::span<KeyedRow> items) {
  constexpr int kBits = 11;
  constexpr size_t kDigits = size_t{1} << kBits;
  uint64_t low = ~uint64_t{0}, high = 0;
  for (const KeyedRow& item : items) {
    low = std::min(low, item.key);
    high = std::max(high, item.key);
  }
  const int width = items.empty() ? 0 : std::bit_width(high - low);
  const auto room = uninitialized<KeyedRow>(items.size());
  std::span<KeyedRow> from = items, to(room.get(), items.size());
  for (int shift = 0; shift < width; shift += kBits) {
    std::array<size_t, kDigits> next{};
    for (const KeyedRow& item : from) ++next[((item.key - low) >> shift) & (kDigits - 1)];
    size_t sum = 0;
    for (size_t& start : next) sum += std::exchange(start, sum);
    for (const KeyedRow& item : from) to[next[((item.key - low) >> shift) & (kDigits - 1)]++] = item;
    std::swap(from, to);
  }
  if (from.data() != items.data()) std::copy(from.begin(), from.end(), items.begin());
}

}  // namespace opspan::columns
