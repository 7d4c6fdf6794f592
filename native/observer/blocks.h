// The sizes of the blocks of memory that are not freed yet, by address.
#pragma once

#include <sched.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

namespace opspan {

// A lock that is taken two times for each block of memory, for some nanoseconds. A mutex would take longer than the
// work that it guards.
class Latch {
 public:
  void lock() {
    while (held_.exchange(true, std::memory_order_acquire)) {
      for (int tries = 0; held_.load(std::memory_order_relaxed); ++tries) {
        if (tries > 100) sched_yield();  // the thread that holds the latch may be waiting for a processor
      }
    }
  }
  void unlock() { held_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool> held_{false};
};

// A hash table in one array. Each block is as near as possible to the slot that its address selects. The table
// allocates nothing when blocks come and go; a table of nodes would allocate for each block.
class alignas(64) Shard {
 public:
  // Throws if there is no memory.
  void put(void* block, size_t size) {
    if (2 * (used_ + 1) > places_.size()) grow();
    size_t at = place_of(block);
    while (places_[at].block && places_[at].block != block) at = next(at);
    if (!places_[at].block) ++used_;
    places_[at] = {block, size};
  }

  // Returns false if the block is not here.
  bool take(void* block, size_t* size) {
    if (!block || places_.empty()) return false;
    size_t at = place_of(block);
    for (; places_[at].block != block; at = next(at)) {
      if (!places_[at].block) return false;
    }
    *size = places_[at].size;
    --used_;
    // Moves later entries into the slot that became free, if they may be there, because a search ends at the first
    // empty slot.
    for (size_t from = next(at); places_[from].block; from = next(from)) {
      if (distance(place_of(places_[from].block), from) < distance(at, from)) continue;
      places_[at] = places_[from];
      at = from;
    }
    places_[at] = {};
    return true;
  }

  Latch latch;

 private:
  struct Place {
    void* block = nullptr;  // null: empty
    size_t size = 0;
  };

  size_t next(size_t at) const { return (at + 1) & (places_.size() - 1); }
  size_t distance(size_t from, size_t to) const { return (to - from) & (places_.size() - 1); }
  size_t place_of(void* block) const {
    return (reinterpret_cast<uintptr_t>(block) / 16 * 0x9e3779b97f4a7c15 >> 20) & (places_.size() - 1);
  }
  void grow() {
    std::vector<Place> before(places_.empty() ? 64 : 2 * places_.size());
    before.swap(places_);
    used_ = 0;
    for (const Place& place : before) {
      if (place.block) put(place.block, place.size);
    }
  }

  std::vector<Place> places_;  // the slots of the table; their number is a power of two
  size_t used_ = 0;
};

class Blocks {
 public:
  void put(void* block, size_t size) {
    Shard& shard = of(block);
    std::lock_guard lock(shard.latch);
    shard.put(block, size);
  }
  // Returns false if the block is not one of ours.
  bool take(void* block, size_t* size) {
    Shard& shard = of(block);
    std::lock_guard lock(shard.latch);
    return shard.take(block, size);
  }
  // Locks all shards for a fork: the child must not inherit a lock that another thread holds.
  void lock() {
    for (Shard& shard : shards_) shard.latch.lock();
  }
  void unlock() {
    for (Shard& shard : shards_) shard.latch.unlock();
  }

 private:
  static constexpr size_t kShards = 16;  // few enough for their tables to stay in the caches
  Shard& of(void* block) { return shards_[reinterpret_cast<uintptr_t>(block) / 64 * 0x9e3779b97f4a7c15 >> 60]; }

  std::array<Shard, kShards> shards_;
};

}  // namespace opspan
