// SQLite files damaged at random go through the reader of pages: each is read or declined, in two threads and in one
// with the same result. Run by tools/sanitize; ends by itself with 0. Needs a python3, which makes the files. The first
// argument says how many files are read.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "sqlite/table.h"

namespace {

using namespace opspan::sqlite;

constexpr int kVariants = 50'000;
constexpr Page kRoot = 2;
std::mt19937 chance(20261123);
size_t below(size_t count) { return std::uniform_int_distribution<size_t>(0, count - 1)(chance); }

std::string made(int page_bytes, int rows) {
  const char* folder = std::getenv("OPSPAN_CAPTURE_DIR");
  const std::string path = std::string(folder != nullptr ? folder : "/tmp") + "/stress.sqlite";
  const std::string program =
      "import sqlite3\n"
      "database = sqlite3.connect('" +
      path + "')\ndatabase.execute('PRAGMA page_size = " + std::to_string(page_bytes) +
      "')\n"
      "database.execute('CREATE TABLE t (a INTEGER, b REAL, c TEXT, d BLOB)')\n"
      "database.executemany('INSERT INTO t VALUES (?, ?, ?, ?)', ((n * 7919 - 5, n / 3, 'text of ' * (n % 9),\n"
      "    b'x' * (3000 if n % 40 == 0 else n % 30)) for n in range(" +
      std::to_string(rows) + ")))\ndatabase.commit()\n";
  if (std::system(("python3 -c \"" + program + "\"").c_str()) != 0) std::exit(2);
  std::ifstream file(path, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(file), {}};
  std::remove(path.c_str());
  return bytes;
}

uint64_t cell_sum(const ArrowArray& column, char format, size_t row) {
  const auto* valid = static_cast<const uint8_t*>(column.buffers[0]);
  if (valid != nullptr && !opspan::columns::bit(valid, row)) return 0;
  if (format != 'v') return static_cast<const uint64_t*>(column.buffers[1])[row];
  const opspan::columns::Texts texts{
      static_cast<const opspan::columns::Texts::View*>(column.buffers[1]), column.buffers + 2, {}};
  return opspan::columns::hash(texts[row]);
}

// What was read, as one number; 0: it was declined.
uint64_t read_sum(int descriptor, size_t threads) {
  std::vector<Column> wanted;
  const Kind kinds[] = {Kind::kInt, Kind::kFloat, Kind::kText, Kind::kBytes};
  for (int32_t field = -1; field < 4; ++field) {
    wanted.push_back({.name = std::to_string(field), .field = field, .kind = field < 0 ? Kind::kInt : kinds[field]});
  }
  try {
    opspan::columns::Output out =
        read(descriptor, std::move(wanted), {.root = kRoot, .fields = 4, .threads = threads, .most_text = 1 << 20});
    ArrowSchema schema;
    ArrowArray array;
    out.give(&schema, &array);
    uint64_t sum = 1 + static_cast<uint64_t>(array.length);
    for (int64_t at = 0; at < array.n_children; ++at) {
      const ArrowArray& column = *array.children[at];
      sum = sum * 31 + static_cast<uint64_t>(column.null_count);
      sum = sum * 31 + static_cast<uint64_t>(column.length);
      for (int64_t row = 0; row < column.length; ++row) {
        sum = sum * 31 + cell_sum(column, schema.children[at]->format[0], static_cast<size_t>(row));
      }
    }
    schema.release(&schema);
    array.release(&array);
    return sum;
  } catch (const Refusal&) {
    return 0;
  }
}

void damage(std::string& bytes, size_t page_bytes) {
  const size_t page = below(bytes.size() / page_bytes) * page_bytes;
  for (size_t count = 1 + below(4); count > 0; --count) {
    // Mostly where a page says what is in it, and where cells begin.
    const size_t place = below(3) == 0 ? below(bytes.size()) : page + below(3) * (page_bytes / 4) + below(24);
    bytes[std::min(place, bytes.size() - 1)] = static_cast<char>(below(4) == 0 ? 0xff : below(256));
  }
  if (below(50) == 0) bytes.resize(below(bytes.size()) + 1);
}

}  // namespace

int main(int count, char** arguments) {
  const int variants = count > 1 ? std::atoi(arguments[1]) : kVariants;
  int read = 0, declined = 0;
  for (const auto& [page_bytes, rows] : {std::pair<int, int>{512, 400}, {1024, 3000}}) {
    const std::string whole = made(page_bytes, rows);
    const int descriptor = memfd_create("stress", 0);
    // The second file takes longer: one variant in eight is of it.
    const int of_this = rows == 400 ? variants - variants / 8 : variants / 8;
    for (int variant = 0; variant < of_this; ++variant) {
      std::string bytes = whole;
      if (variant > 0) damage(bytes, static_cast<size_t>(page_bytes));
      if (ftruncate(descriptor, static_cast<off_t>(bytes.size())) != 0 ||
          pwrite(descriptor, bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
        return 2;
      }
      const uint64_t sum = read_sum(descriptor, 2);
      if (sum != read_sum(descriptor, 1) || (variant == 0 && sum == 0)) {
        std::printf("variant %d of pages of %d bytes: two results\n", variant, page_bytes);
        return 1;
      }
      ++(sum == 0 ? declined : read);
    }
    close(descriptor);
  }
  std::printf("%d files read, %d declined\n", read, declined);
  return declined > 0 && read > 0 ? 0 : 1;
}
