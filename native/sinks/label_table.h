// A table of distinct labels, each with the handle that a tool returned for it. Finding a label takes no lock and
// allocates nothing. An entry keeps its address as long as the process lives, because a tool keeps a registered string
// as long.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "capture/hash.h"

namespace opspan {

// A name, with an optional number and optional sizes. It is hashed once. Keys are compared in full.
struct Key {
  std::string_view name;
  uint64_t extra;
  const int64_t* words;
  size_t word_count;
  uint64_t hash;

  explicit Key(std::string_view label, uint64_t number = 0, const int64_t* sizes = nullptr, size_t size_count = 0)
      : name(label), extra(number), words(sizes), word_count(size_count), hash(mix()) {}

 private:
  uint64_t mix() const {
    uint64_t h = capture::hash_of(words, word_count, capture::hash_of(name, extra));
    return h ? h : 1;
  }
};

class LabelTable {
  // Does not call memcmp for 0 bytes: with a null pointer that can take 80 ns (a masked vector load).
  static bool equal(const void* a, const void* b, size_t bytes) { return !bytes || !std::memcmp(a, b, bytes); }

 public:
  struct Entry {
    uint64_t hash;
    uint64_t extra;
    uint32_t name_length;
    uint32_t word_count;
    const int64_t* words;
    const char* name;
    std::string text;  // the text that was passed to the tool
    void* handle;      // the handle that the tool returned
    bool is(const Key& key) const {
      return hash == key.hash && extra == key.extra && name_length == key.name.size() && word_count == key.word_count &&
             equal(name, key.name.data(), name_length) && equal(words, key.words, word_count * sizeof(int64_t));
    }
  };

  // Returns null if the label is not in the table.
  const Entry* find(const Key& key) const {
    const Table* table = table_.load(std::memory_order_acquire);
    if (!table) return nullptr;
    for (uint64_t i = key.hash & table->mask;; i = (i + 1) & table->mask) {
      const Entry* entry = table->slots[i].load(std::memory_order_acquire);
      if (!entry || entry->is(key)) return entry;
    }
  }

  // Finds or adds a label. `build` appends the text to a string, and `make_handle` makes the tool's handle from the
  // text. Both run without a lock. So another thread may add the label first; then `drop` frees the handle. Returns
  // null if the label is new and the table already has `limit` entries.
  template <class Build, class MakeHandle, class Drop = void (*)(void*)>
  const Entry* get(
      const Key& key, uint32_t limit, Build&& build, MakeHandle&& make_handle, Drop&& drop = [](void*) {}) {
    if (const Entry* entry = find(key)) [[likely]]
      return entry;
    if (count_.load(std::memory_order_relaxed) >= limit) return nullptr;
    std::string text;
    build(text);
    void* handle = make_handle(text.c_str());
    const Entry* entry = add(key, std::move(text), handle);
    if (entry->handle != handle) drop(handle);
    return entry;
  }

 private:
  struct Table {
    uint64_t mask;
    std::atomic<const Entry*>* slots;
    // The table that was in use before this one. Another thread may still read it. All earlier tables together are at
    // most as large as this one.
    const Table* smaller;
  };
  const Entry* add(const Key& key, std::string text, void* handle);
  static void insert(const Table& table, const Entry* entry);

  std::atomic<const Table*> table_{nullptr};
  std::atomic<uint32_t> count_{0};
};

}  // namespace opspan
