// What a thread was last told for runs of words, by file: ids that it would otherwise look up in several tables.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "capture/hash.h"

namespace opspan::capture {

struct Ids {
  uint32_t first = 0;  // 0: no id
  uint32_t second = 0;
  uint32_t third = 0;
};

// Zeros, and none where there is no memory. Pages of it that nobody asks for stay the system's.
template <class Entry>
struct Table {
  Entry* at = nullptr;

  Table() = default;
  Table(const Table&) = delete;
  Table& operator=(const Table&) = delete;
  ~Table() { std::free(at); }
  bool has(size_t count) {
    if (!at) [[unlikely]]
      at = static_cast<Entry*>(std::calloc(count, sizeof(Entry)));
    return at;
  }
};

class Recall {
 public:
  // `what` tells runs of several meanings apart. `make` is asked where the words are not known, or too many.
  template <class Make>
  Ids get(uint32_t file, uint32_t what, const int64_t* words, size_t count, Make&& make) {
    if (count > kWords || !kept_.has(kKept)) return make();
    uint64_t hash = hash_of(words, count, what);
    auto is = [&](const Kept& it) {
      return it.hash == hash && it.file == file && it.what == what && it.count == count &&
             std::equal(words, words + count, it.words);
    };
    Kept& kept = slot_of<kKept>(kept_.at, hash, file, is);
    if (is(kept)) [[likely]]
      return kept.ids;
    Ids ids = make();
    if (!ids.first) return ids;  // there is no room in the file
    kept = {hash, file, static_cast<uint16_t>(what), static_cast<uint16_t>(count), ids, {}};
    std::copy_n(words, count, kept.words);
    return ids;
  }

 private:
  static constexpr size_t kWords = 28;
  static constexpr size_t kKept = 1024;
  struct Kept {
    uint64_t hash;
    uint32_t file;  // 0: empty
    uint16_t what;
    uint16_t count;
    Ids ids;
    int64_t words[kWords];
  };
  Table<Kept> kept_;
};

}  // namespace opspan::capture
