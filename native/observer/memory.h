// Tells a sink what memory of the host torch takes and gives back, on every thread.
//
// Allocators of torch's have no callbacks but those of torch.profiler, which one profiler alone can have at a time. So
// this one stands before the allocator that is there, and hands everything on to it. A block keeps its address and its
// context; only its deleter is ours, as long as the block lives, and this library is never unloaded.
#pragma once

#include <c10/core/Allocator.h>
#include <pthread.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <mutex>
#include <new>

#include "blocks.h"
#include "sinks.h"

namespace opspan {

class Memory final : public c10::Allocator {
 public:
  using Tell = void (*)(const opspan_memory*);

  // For good: blocks may outlive whatever ends with the process.
  static Memory& it() {
    static auto* memory = new Memory;
    return *memory;
  }

  // Tells this sink as well. 0, or -errno.
  int start(int sink, Tell tell) {
    std::lock_guard lock(control_);
    c10::Allocator* there = c10::GetAllocator(c10::DeviceType::CPU);
    if (there != this) {
      // Blocks of an allocator that has no plain deleter are bound to contexts of their own.
      if (!there || !there->raw_deleter()) return -ENOTSUP;
      // Another one than before may stand on this one, and blocks that live still need the deleter of the one before.
      if (c10::Allocator* before = inner_.load(); before && before != there) return -EPERM;
      inner_.store(there);
      deleter_.store(there->raw_deleter());
      c10::SetAllocator(c10::DeviceType::CPU, this);
      if (c10::GetAllocator(c10::DeviceType::CPU) != this) return -EPERM;  // one with a higher priority is there
    }
    static int forks =
        pthread_atfork([] { it().blocks_.lock(); }, [] { it().blocks_.unlock(); }, [] { it().blocks_.unlock(); });
    (void)forks;
    tells_[sink].store(tell);
    return 0;
  }

  void stop(int sink) {
    std::lock_guard lock(control_);
    tells_[sink].store(nullptr);
    for (const auto& tell : tells_) {
      if (tell.load()) return;
    }
    // Unless somebody has put another one before it since.
    if (c10::GetAllocator(c10::DeviceType::CPU) == this) c10::SetAllocator(c10::DeviceType::CPU, inner_.load());
  }

  c10::DataPtr allocate(size_t size) override {
    c10::DataPtr block;
    try {
      block = inner_.load()->allocate(size);
    } catch (...) {
      say(nullptr, static_cast<int64_t>(size), OPSPAN_MEMORY_FAILED);
      throw;
    }
    void* data = block.get();
    if (!data || block.get_context() != data || block.get_deleter() != deleter_.load()) return block;
    try {
      blocks_.put(data, size);
    } catch (const std::bad_alloc&) {
      return block;
    }
    c10::Device device = block.device();
    block.release_context();
    total_.fetch_add(static_cast<int64_t>(size));
    say(data, static_cast<int64_t>(size), OPSPAN_MEMORY_TAKEN);
    return c10::DataPtr(data, data, &gone, device);
  }

  c10::DeleterFnPtr raw_deleter() const override { return &gone; }

  void copy_data(void* to, const void* from, size_t count) const override { inner_.load()->copy_data(to, from, count); }

 private:
  static void gone(void* block) {
    Memory& memory = it();
    size_t size = 0;
    if (memory.blocks_.take(block, &size)) {
      memory.total_.fetch_sub(static_cast<int64_t>(size));
      memory.say(block, static_cast<int64_t>(size), OPSPAN_MEMORY_GIVEN_BACK);
    }
    memory.deleter_.load()(block);
  }

  void say(void* block, int64_t bytes, uint32_t what) {
    opspan_memory told = {};
    told.what = what;
    told.device_type = static_cast<int32_t>(c10::DeviceType::CPU);
    told.device_index = -1;
    told.address = reinterpret_cast<uint64_t>(block);
    told.bytes = bytes;
    told.total = total_.load(std::memory_order_relaxed);
    for (const auto& to : tells_) {
      if (Tell tell = to.load(std::memory_order_acquire)) tell(&told);
    }
  }

  std::mutex control_;
  std::atomic<c10::Allocator*> inner_{nullptr};
  std::atomic<c10::DeleterFnPtr> deleter_{nullptr};
  std::array<std::atomic<Tell>, OPSPAN_SINK_COUNT> tells_ = {};
  std::atomic<int64_t> total_{0};
  Blocks blocks_;
};

}  // namespace opspan
