#include "sqlite/table.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "columns/parallel.h"
#include "sqlite/column.h"
#include "sqlite/pages.h"

namespace opspan::sqlite {
namespace {

using columns::Blocks;
using columns::Output;

constexpr size_t kLeavesOfThread = 256;  // the fewest leaves for which another thread saves time

constexpr size_t kSpare = 8;  // number of bytes after a value that must be readable

// Reads leaves one after the other. Leaves that are close together in the file are read in one step.
class Window {
 public:
  explicit Window(const File& file) : file_(file), bytes_(kPages * file.page_bytes() + kSpare) {}

  const Byte* page(const std::vector<Leaf>& leaves, size_t at, size_t to) {
    const Page page = leaves[at].page;
    if (page < first_ || page >= first_ + count_) {
      size_t last = at;
      while (last + 1 < to && leaves[last + 1].page > leaves[last].page && leaves[last + 1].page - page < kPages)
        ++last;
      first_ = page;
      count_ = leaves[last].page - page + 1;
      file_.read(first_, count_, bytes_.data());
    }
    return bytes_.data() + (page - first_) * file_.page_bytes();
  }

 private:
  static constexpr Page kPages = 64;
  const File& file_;
  std::vector<Byte> bytes_;
  Page first_ = 0, count_ = 0;
};

// Returns each record as contiguous bytes. Most records are in one page; the others continue in a chain of pages.
class Records {
 public:
  explicit Records(const File& file) : file_(file), next_(file.page_bytes()) {}

  // Returns the record at `at`, which has `bytes` bytes in total.
  const Byte* in_one_piece(const Byte* at, const Byte* end, uint64_t bytes) {
    const size_t usable = file_.usable();
    const size_t most = usable - 35;
    if (bytes <= most) {
      if (bytes > static_cast<size_t>(end - at)) throw Refusal("a cell outside");
      return at;
    }
    if (bytes > size_t{file_.pages()} * usable) throw Refusal("a record that is longer than the file");
    const size_t least = (usable - 12) * 32 / 255 - 23;
    const size_t fitting = least + (bytes - least) % (usable - 4);
    const size_t here = fitting <= most ? fitting : least;
    if (here + 4 > static_cast<size_t>(end - at)) throw Refusal("a cell outside");
    record_.assign(at, at + here);
    Page page = four_bytes(at + here);
    while (record_.size() < bytes) {
      file_.check(page);
      file_.read(page, 1, next_.data());
      const size_t more = std::min<size_t>(bytes - record_.size(), usable - 4);
      record_.insert(record_.end(), next_.begin() + 4, next_.begin() + 4 + static_cast<ptrdiff_t>(more));
      page = four_bytes(next_.data());
    }
    record_.resize(bytes + kSpare);
    return record_.data();
  }

 private:
  const File& file_;
  std::vector<Byte> next_, record_;
};

// Reads the leaves that one thread has to read.
class Part {
 public:
  Part(const File& file, std::vector<Column>& all, size_t fields, size_t from, size_t to,
       const std::shared_ptr<Blocks>& blocks)
      : file_(file), window_(file), records_(file), by_field_(fields, nullptr), row_(from) {
    cells_.reserve(all.size());
    for (Column& column : all) {
      Cells& cells = cells_.emplace_back(column, from, to, blocks, turns_);
      if (column.field < 0) {
        numbers_.push_back(&cells);
      } else {
        by_field_.at(static_cast<size_t>(column.field)) = &cells;
      }
    }
  }

  void read(const std::vector<Leaf>& leaves, size_t from, size_t to, size_t most_text) {
    for (size_t at = from; at < to; ++at) {
      leaf(window_.page(leaves, at, to), leaves[at]);
      if (text_bytes() > most_text) throw Refusal("more text than a file of this size holds");
    }
  }

  size_t text_bytes() const {
    size_t bytes = 0;
    for (const Cells& cells : cells_) bytes += cells.text_bytes();
    return bytes;
  }

  Cells& cells(size_t column) { return cells_[column]; }

 private:
  static constexpr uint64_t kNoRecord = ~uint64_t{0};
  // A value in a record. It has the same offset in all records whose fields have the same types.
  struct Value {
    Cells* cells;
    uint64_t type;
    size_t from;
  };
  struct RecordLayout {
    uint64_t bytes = kNoRecord;
    size_t turns = 0;
    std::vector<Byte> head;
    std::vector<Value> values;
  };

  void leaf(const Byte* page, const Leaf& leaf) {
    const Byte* head = page + File::header_of(leaf.page);
    const Byte* pointers = head + 8;
    const Byte* end = page + file_.usable();
    const Byte* cells = pointers + 2 * size_t{leaf.cells};
    // The kind and the number of cells of each page were checked when the leaves were counted. If they differ now, the
    // file has changed since.
    if (head[0] != 13 || two_bytes(head + 3) != leaf.cells) throw Refusal("the file changes");
    if (cells > end) throw Refusal("more cells than a page has room for");
    std::optional<int64_t> before;
    if (leaf.has_above) before = leaf.above;
    for (size_t cell = 0; cell < leaf.cells; ++cell) {
      const Byte* at = page + two_bytes(pointers + 2 * cell);
      uint64_t bytes = 0, number = 0;
      if (at < cells) throw Refusal("a cell outside");
      at = varint(at, end, bytes);
      if (at != nullptr) at = varint(at, end, number);
      if (at == nullptr) throw Refusal("a cell outside");
      const auto row = static_cast<int64_t>(number);
      if ((before && row <= *before) || row > leaf.most) throw Refusal("rows out of order");
      before = row;
      record(records_.in_one_piece(at, end, bytes), bytes);
      for (Cells* column : numbers_) column->set_number(row_, row);
      ++row_;
    }
  }

  // Reads a record: first the types of all fields, then their values. If a record with the same types is remembered,
  // the positions of the values are known, and values that change nothing are skipped.
  void record(const Byte* at, uint64_t bytes) {
    // The first byte is the size of the record's head. If the size takes more bytes, fewer records are recognised.
    const size_t head = std::min<uint64_t>(*at, bytes);
    RecordLayout& layout = layouts_[columns::hash({reinterpret_cast<const char*>(at), head}) % layouts_.size()];
    if (layout.bytes == bytes && layout.turns == turns_ &&
        std::memcmp(layout.head.data(), at, layout.head.size()) == 0) {
      for (const Value& value : layout.values) value.cells->set(row_, value.type, at + value.from);
    } else {
      read_record(at, bytes, layout);
    }
  }

  void read_record(const Byte* at, uint64_t bytes, RecordLayout& layout) {
    layout.bytes = kNoRecord;
    layout.values.clear();
    uint64_t head = 0;
    const Byte* end = at + bytes;
    const Byte* types = varint(at, end, head);
    if (types == nullptr || head > bytes || types > at + head) throw Refusal("a record without a head");
    const Byte* values = at + head;
    const Byte* no_more = values;
    size_t field = 0;
    for (; types < no_more; ++field) {
      uint64_t type = *types;
      if (type < 0x80) {
        ++types;
      } else {
        types = varint(types, no_more, type);
        if (types == nullptr) throw Refusal("a record with a broken head");
      }
      if (field == by_field_.size()) throw Refusal("a record with too many fields");
      const uint64_t size = bytes_of(type);
      if (size > static_cast<size_t>(end - values)) throw Refusal("a value outside of its record");
      if (Cells* column = by_field_[field]) {
        column->set(row_, type, values);
        if (!column->has_all_of(type)) layout.values.push_back({column, type, static_cast<size_t>(values - at)});
      }
      values += size;
    }
    if (values != end) throw Refusal("a record that goes on behind its values");
    const bool has_all_fields = field == by_field_.size();
    for (; field < by_field_.size(); ++field) {
      if (Cells* column = by_field_[field]) column->set_default(row_);
    }
    if (!has_all_fields) return;
    layout.head.assign(at, no_more);
    layout.bytes = bytes;
    layout.turns = turns_;
  }

  const File& file_;
  Window window_;
  Records records_;
  size_t turns_ = 0;
  std::array<RecordLayout, 256> layouts_;
  std::vector<Cells> cells_;
  std::vector<Cells*> by_field_;  // the cells for each field of a record; null: the field is not wanted
  std::vector<Cells*> numbers_;   // cells of the columns that hold row ids
  size_t row_;
};

// Adds a column to the output. If all rows are needed, adds all rows. Otherwise adds nothing if the column is empty,
// one row if all values are the same, or else all rows. Returns whether it added all rows.
bool give(std::vector<std::unique_ptr<Part>>& parts, size_t at, Column& column, Output& to,
          const std::shared_ptr<Blocks>& blocks, bool needs_all_rows) {
  auto all = [&](auto is) {
    return std::all_of(parts.begin(), parts.end(), [&](auto& part) { return is(part->cells(at)); });
  };
  Cells& first = parts[0]->cells(at);
  if (!needs_all_rows && all([](const Cells& cells) { return cells.holds_nothing(); })) return false;
  if (!needs_all_rows && all([&](const Cells& cells) { return cells.has_same_value(first); })) {
    first.write(1);
    column.give(to, blocks, false);
    to.mark_constant();
    return false;
  }
  const bool has_nulls = !all([](const Cells& cells) { return !cells.has_nulls(); });
  for (auto& part : parts) part->cells(at).finish(has_nulls);
  column.give(to, blocks, has_nulls);
  return true;
}

}  // namespace

columns::Output read(int descriptor, std::vector<Column> wanted_columns, const Table& table) {
  const File file(descriptor);
  const size_t most_text = table.most_text;
  const std::vector<Leaf> all = leaves(file, table.root, table.threads);

  std::vector<size_t> rows(all.size() + 1);  // number of rows before each leaf
  for (size_t at = 0; at < all.size(); ++at) rows[at + 1] = rows[at] + all[at].cells;
  if (rows.back() >= columns::kNone) throw Refusal("more rows than can be counted");
  for (Column& column : wanted_columns) column.begin(rows.back());

  const auto blocks = std::make_shared<Blocks>();
  const size_t count = std::min(table.threads, all.size() / kLeavesOfThread + 1);
  std::vector<std::unique_ptr<Part>> parts(count);
  auto bound = [&](size_t n) { return all.size() * n / count; };
  columns::run_parallel(count, [&](size_t n) {
    const size_t from = bound(n), to = bound(n + 1);
    parts[n] = std::make_unique<Part>(file, wanted_columns, table.fields, rows[from], rows[to], blocks);
    parts[n]->read(all, from, to, most_text);
  });
  size_t text_bytes = 0;
  for (const auto& part : parts) text_bytes += part->text_bytes();
  if (text_bytes > most_text) throw Refusal("more text than a file of this size holds");

  Output out(rows.back());
  auto total = columns::uninitialized<int64_t>(1);
  total[0] = static_cast<int64_t>(text_bytes);
  out.add("text_bytes", std::move(total));
  out.mark_constant();
  bool has_full_column = false;
  for (size_t at = 0; at < wanted_columns.size(); ++at) {
    const bool is_last = at + 1 == wanted_columns.size();
    has_full_column = give(parts, at, wanted_columns[at], out, blocks, is_last && !has_full_column) || has_full_column;
  }
  return out;
}

}  // namespace opspan::sqlite
