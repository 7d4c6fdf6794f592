// Caches of one thread. One maps an array of 64-bit words to ids of texts in a capture file. The others map the fields
// that several ranges share to the number of the unit that holds these fields.
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

// A hash table of entries, used as a cache. Each entry belongs to one `file`, and new entries replace old ones. The
// memory of an unused entry is all zeros. An entry is in the slot that its hash selects, or in one of the next three.
// (If it could be in only two slots, a tenth of 300 entries found no free slot, and had to be looked up outside the
// cache each time.)
template <class Entry, size_t kPlaces>
class Table {
 public:
  struct Slot {
    Entry* entry;   // the entry that was found, or the one to overwrite; null if there is no memory
    bool is_known;  // true if the entry was found
  };

  Table() = default;
  Table(const Table&) = delete;
  Table& operator=(const Table&) = delete;
  ~Table() { std::free(entries_); }

  template <class Matches>
  Slot slot(uint64_t hash, uint32_t file, Matches&& matches) {
    if (!entries_ && !allocate()) [[unlikely]]
      return {nullptr, false};
    constexpr size_t kFew = 4;
    for (size_t i = 0; i < kFew; ++i) {
      Entry& entry = entries_[((hash >> 32) + i) % kPlaces];
      if (entry.file != file) return {&entry, false};
      if (matches(entry)) [[likely]]
        return {&entry, true};
    }
    return {&entries_[(hash >> 32) % kPlaces], false};
  }

 private:
  // Allocates zeroed pages. Pages that are never touched take no memory.
  bool allocate() {
    entries_ = static_cast<Entry*>(std::calloc(kPlaces, sizeof(Entry)));
    return entries_;
  }

  Entry* entries_ = nullptr;
};

class IdCache {
 public:
  // Returns the string ids for an array of 64-bit words. `what` is the meaning of the words (sizes, values ...), so
  // equal words with different meanings have different ids. Calls `make` for the ids if the words are not in the cache,
  // or are too many for an entry.
  template <class Make>
  Ids get(uint32_t file, uint32_t what, const int64_t* words, size_t count, Make&& make) {
    if (count > kWords) return make();
    uint64_t hash = hash_of(words, count, what);
    auto matches = [&](const Entry& candidate) {
      return candidate.hash == hash && candidate.what == what && candidate.count == count &&
             std::equal(words, words + count, candidate.words);
    };
    auto [entry, is_known] = table_.slot(hash, file, matches);
    if (is_known) [[likely]]
      return entry->ids;
    Ids ids = make();
    if (!entry || !ids.first) return ids;  // the file had no room for the text
    *entry = {hash, file, static_cast<uint16_t>(what), static_cast<uint16_t>(count), ids, {}};
    std::copy_n(words, count, entry->words);
    return ids;
  }

 private:
  static constexpr size_t kWords = 28;
  struct Entry {
    uint64_t hash;
    uint32_t file;  // 0: empty
    uint16_t what;
    uint16_t count;
    Ids ids;
    int64_t words[kWords];
  };
  Table<Entry, 1024> table_;
};

// A cache entry: the fields that several ranges share, and the kModel unit that holds them.
struct Model {
  SharedFields shared;
  uint64_t number;     // number of the kModel unit; Log::kOnce: it is not written yet
  uint32_t file;       // 0: empty
  uint32_t unused[5];  // padding to the size of a cache line
};

// A cache entry: the kModel unit for ops with these inputs. It is looked up by the digest of the inputs, before
// anything else is looked up.
struct InputsModel {
  Digest inputs;
  uint64_t model;  // number of the kModel unit
  uint32_t file;   // 0: empty
};

}  // namespace opspan::capture
