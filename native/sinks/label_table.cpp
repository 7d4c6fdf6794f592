#include "sinks/label_table.h"

#include <mutex>

#include "sinks/threads.h"

namespace opspan {

void LabelTable::insert(const Table& table, const Entry* entry) {
  uint64_t i = entry->hash & table.mask;
  while (table.slots[i].load(std::memory_order_relaxed)) i = (i + 1) & table.mask;
  table.slots[i].store(entry, std::memory_order_release);
}

const LabelTable::Entry* LabelTable::add(const Key& key, std::string text, void* handle) {
  std::lock_guard guard(slow_lock());
  if (const Entry* entry = find(key)) return entry;
  const Table* table = table_.load(std::memory_order_relaxed);
  uint32_t count = count_.load(std::memory_order_relaxed);
  if (!table || count * 2 >= table->mask) {
    uint64_t slots = table ? (table->mask + 1) * 2 : 256;
    auto* larger = new Table{slots - 1, new std::atomic<const Entry*>[slots] {}, table};
    for (uint64_t i = 0; table && i <= table->mask; ++i) {
      if (const Entry* entry = table->slots[i].load(std::memory_order_relaxed)) insert(*larger, entry);
    }
    table_.store(table = larger, std::memory_order_release);
  }
  auto* words = key.word_count ? new int64_t[key.word_count] : nullptr;
  if (words) std::memcpy(words, key.words, key.word_count * sizeof(int64_t));
  auto* name = new char[key.name.size() + 1];
  key.name.copy(name, key.name.size());
  name[key.name.size()] = 0;
  auto* entry = new Entry{key.hash,
                          key.extra,
                          static_cast<uint32_t>(key.name.size()),
                          static_cast<uint32_t>(key.word_count),
                          words,
                          name,
                          std::move(text),
                          handle};
  insert(*table, entry);
  count_.store(count + 1, std::memory_order_relaxed);
  return entry;
}

}  // namespace opspan
