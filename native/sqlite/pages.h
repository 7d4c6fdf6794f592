// The pages of an SQLite file (https://sqlite.org/fileformat2.html). They are read with pread: if somebody cuts the
// file at the same time, pread only returns fewer bytes. With mapped memory, a signal would end the program.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace opspan::sqlite {

// Thrown if a table cannot be read here, whether it is valid or damaged. SQLite itself should then read the table and
// report errors.
struct Refusal : std::runtime_error {
  using std::runtime_error::runtime_error;
};

using Byte = unsigned char;
using Page = uint32_t;  // the number of a page, counted from 1

inline uint32_t two_bytes(const Byte* at) { return uint32_t{at[0]} << 8 | at[1]; }
inline uint32_t four_bytes(const Byte* at) { return two_bytes(at) << 16 | two_bytes(at + 2); }

// Reads a number of 1 to 9 bytes. Returns the position behind the number; null if the number does not end before `end`.
inline const Byte* varint(const Byte* at, const Byte* end, uint64_t& value) {
  if (at < end && *at < 0x80) {
    value = *at;
    return at + 1;
  }
  value = 0;
  for (int count = 0; at < end; ++count, ++at) {
    if (count == 8) {
      value = value << 8 | *at;
      return at + 1;
    }
    value = value << 7 | (*at & 0x7f);
    if (*at < 0x80) return at + 1;
  }
  return nullptr;
}

class File {
 public:
  explicit File(int descriptor);

  size_t page_bytes() const { return page_bytes_; }
  size_t usable() const { return usable_; }  // bytes of a page without those that are reserved at its end
  Page pages() const { return pages_; }
  // Returns where in a page its B-tree begins. In the first page, the header of the file comes before the B-tree.
  static size_t header_of(Page page) { return page == 1 ? 100 : 0; }
  // `read` reads `count` pages, beginning with `page`. `read_begin` reads only the first bytes of the B-tree in `page`.
  void read(Page page, size_t count, Byte* to) const { read_at(offset(page), count * page_bytes_, to); }
  void read_begin(Page page, size_t bytes, Byte* to) const { read_at(offset(page) + header_of(page), bytes, to); }
  // Throws if the page cannot be part of a B-tree.
  void check(Page page) const;

 private:
  size_t offset(Page page) const { return (page - size_t{1}) * page_bytes_; }
  void read_at(size_t offset, size_t bytes, Byte* to) const;

  int descriptor_;
  size_t page_bytes_ = 0, usable_ = 0;
  Page pages_ = 0;
};

// A leaf of a table, and the bounds of its row ids.
struct Leaf {
  Page page;
  uint32_t cells;
  int64_t above;  // all row ids of the leaf are greater than this
  int64_t most;   // no row id of the leaf is greater than this
  bool has_above;
};

// Returns all leaves of the table with this root, in order.
std::vector<Leaf> leaves(const File& file, Page root, size_t threads);

}  // namespace opspan::sqlite
