// What a thread was last told, by file: ids of runs of words, and units that tell what ranges have in common.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "capture/halves.h"
#include "capture/hash.h"

namespace opspan::capture {

struct Ids {
  uint32_t first = 0;  // 0: no id
  uint32_t second = 0;
  uint32_t third = 0;
};

// Entries that were told in files, of which it forgets some. An entry begins as zeros and has the `file` that it is of;
// it may be at any of a few places from the one that its hash says.
template <class Entry, size_t kPlaces>
class Table {
 public:
  struct Slot {
    Entry* entry;   // or where it goes; null: there is no memory
    bool is_known;  // it is there
  };

  Table() = default;
  Table(const Table&) = delete;
  Table& operator=(const Table&) = delete;
  ~Table() { std::free(entries_); }

  template <class Is>
  Slot slot(uint64_t hash, uint32_t file, Is&& is) {
    if (!entries_ && !start()) [[unlikely]]
      return {nullptr, false};
    constexpr size_t kFew = 4;
    for (size_t i = 0; i < kFew; ++i) {
      Entry& entry = entries_[((hash >> 32) + i) % kPlaces];
      if (entry.file != file) return {&entry, false};
      if (is(entry)) [[likely]]
        return {&entry, true};
    }
    return {&entries_[(hash >> 32) % kPlaces], false};
  }

 private:
  // Pages of it that nobody asks for stay the system's.
  bool start() {
    entries_ = static_cast<Entry*>(std::calloc(kPlaces, sizeof(Entry)));
    return entries_;
  }

  Entry* entries_ = nullptr;
};

class Recall {
 public:
  // `what` tells runs of several meanings apart. `make` is asked where the words are not known, or too many.
  template <class Make>
  Ids get(uint32_t file, uint32_t what, const int64_t* words, size_t count, Make&& make) {
    if (count > kWords) return make();
    uint64_t hash = hash_of(words, count, what);
    auto is = [&](const Kept& it) {
      return it.hash == hash && it.what == what && it.count == count && std::equal(words, words + count, it.words);
    };
    auto [kept, is_known] = kept_.slot(hash, file, is);
    if (is_known) [[likely]]
      return kept->ids;
    Ids ids = make();
    if (!kept || !ids.first) return ids;  // no id: there is no room in the file
    *kept = {hash, file, static_cast<uint16_t>(what), static_cast<uint16_t>(count), ids, {}};
    std::copy_n(words, count, kept->words);
    return ids;
  }

 private:
  static constexpr size_t kWords = 28;
  struct Kept {
    uint64_t hash;
    uint32_t file;  // 0: empty
    uint16_t what;
    uint16_t count;
    Ids ids;
    int64_t words[kWords];
  };
  Table<Kept, 1024> kept_;
};

// The unit that tells what ranges have in common.
struct Model {
  Common common;
  uint64_t number;     // of the unit
  uint32_t file;       // 0: empty
  uint32_t unused[5];  // a line
};

// The same by the numbers that tell of an op with inputs, before anything is looked up for them.
struct Alike {
  Digest all;
  uint64_t model;  // number of the unit
  uint32_t file;   // 0: empty
};

}  // namespace opspan::capture
