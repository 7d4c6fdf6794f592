// Objects whose addresses clients use as handles. A client may pass any other value, so an address is checked before it
// is read. The check takes no lock and lasts a few nanoseconds.
#pragma once

#include <atomic>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <utility>

namespace opspan::collectors {

// All objects of one type, in aligned blocks. They are never freed. Hold the registry's lock to add one.
template <typename T>
class Handles {
 public:
  // Returns null if there is no memory, or if there are millions already.
  template <typename... Arguments>
  T* add(Arguments&&... arguments) {
    if (!last_ || last_->used.load(std::memory_order_relaxed) == kSlots) {
      if (!add_block()) return nullptr;
    }
    uint32_t used = last_->used.load(std::memory_order_relaxed);
    T* object = new (at(last_, used)) T(std::forward<Arguments>(arguments)...);
    last_->used.store(used + 1, std::memory_order_release);
    return object;
  }

  // Returns the object at this address; null if there is none.
  T* find(uint64_t address) const {
    uint64_t base = address & ~(kBlock - 1);
    const Block* block = first_.load(std::memory_order_acquire);
    if (reinterpret_cast<uint64_t>(block) != base || !block) [[unlikely]] {  // most programs need only one block
      if (!(block = search(base))) return nullptr;
    }
    uint64_t slot = (address - base) / kStride;
    bool is_ours = slot && address % kStride == 0 && slot <= block->used.load(std::memory_order_acquire);
    return is_ours ? reinterpret_cast<T*>(address) : nullptr;
  }
  T* find(const void* address) const { return find(reinterpret_cast<uint64_t>(address)); }

 private:
  struct Block {
    std::atomic<uint32_t> used{0};  // number of slots in use
  };
  static constexpr uint64_t kBlock = 1 << 16;
  static constexpr uint64_t kStride = std::bit_ceil(sizeof(T));
  static constexpr uint32_t kSlots = kBlock / kStride - 1;
  static constexpr size_t kBlocks = 1 << 14;
  static_assert(kStride >= sizeof(Block) && alignof(T) <= kStride);

  const Block* search(uint64_t base) const {
    for (size_t i = place_of(base);; i = (i + 1) % kBlocks) {
      const Block* block = blocks_[i].load(std::memory_order_acquire);
      if (!block || reinterpret_cast<uint64_t>(block) == base) return block;
    }
  }
  static size_t place_of(uint64_t base) { return base * 0x9e3779b97f4a7c15 >> 50; }
  static void* at(Block* block, uint32_t used) { return reinterpret_cast<char*>(block) + (used + 1) * kStride; }

  bool add_block() {
    void* memory = count_ < kBlocks / 2 ? std::aligned_alloc(kBlock, kBlock) : nullptr;
    if (!memory) return false;
    last_ = new (memory) Block;
    ++count_;
    size_t i = place_of(reinterpret_cast<uint64_t>(memory));
    while (blocks_[i].load(std::memory_order_relaxed)) i = (i + 1) % kBlocks;
    blocks_[i].store(last_, std::memory_order_release);
    if (count_ == 1) first_.store(last_, std::memory_order_release);
    return true;
  }

  std::atomic<Block*> first_{nullptr};
  std::atomic<Block*> blocks_[kBlocks] = {};  // a hash table of addresses; at least half of it stays empty
  Block* last_ = nullptr;
  size_t count_ = 0;
};

}  // namespace opspan::collectors
