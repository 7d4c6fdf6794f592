// Tells sinks which memory of the host torch allocates and frees, on every thread.
//
// Torch's allocators have callbacks only for torch.profiler, and only one profiler can use them. So this allocator
// takes the place of the current one, and passes every call on to it. Blocks keep their address and their context, but
// they have our deleter until they are freed. So this library is never unloaded.
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
  using Callback = void (*)(const opspan_memory*);

  // It is never destroyed: blocks may outlive everything that ends with the process.
  static Memory& instance() {
    static auto* memory = new Memory;
    return *memory;
  }

  // Starts sending memory events to this sink, too. Returns 0, or -errno.
  int start(int sink, Callback callback) {
    std::lock_guard lock(control_);
    c10::Allocator* current = c10::GetAllocator(c10::DeviceType::CPU);
    if (current != this) {
      // If an allocator has no plain deleter, each of its blocks needs its own context.
      if (!current || !current->raw_deleter()) return -ENOTSUP;
      // The current allocator may differ from the one at the last start. The current allocator may itself use this one,
      // and blocks that are not freed yet still need the deleter of the earlier allocator.
      if (c10::Allocator* previous = inner_.load(); previous && previous != current) return -EPERM;
      inner_.store(current);
      deleter_.store(current->raw_deleter());
      c10::SetAllocator(c10::DeviceType::CPU, this);
      // An allocator with a higher priority stays where it is.
      if (c10::GetAllocator(c10::DeviceType::CPU) != this) return -EPERM;
    }
    static int forks = pthread_atfork([] { instance().blocks_.lock(); }, [] { instance().blocks_.unlock(); },
                                      [] { instance().blocks_.unlock(); });
    (void)forks;
    callbacks_[sink].store(callback);
    return 0;
  }

  void stop(int sink) {
    std::lock_guard lock(control_);
    callbacks_[sink].store(nullptr);
    for (const auto& callback : callbacks_) {
      if (callback.load()) return;
    }
    // Puts the earlier allocator back, unless somebody has replaced this one since.
    if (c10::GetAllocator(c10::DeviceType::CPU) == this) c10::SetAllocator(c10::DeviceType::CPU, inner_.load());
  }

  c10::DataPtr allocate(size_t size) override {
    c10::DataPtr block;
    try {
      block = inner_.load()->allocate(size);
    } catch (...) {
      report(nullptr, static_cast<int64_t>(size), OPSPAN_MEMORY_FAILED);
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
    report(data, static_cast<int64_t>(size), OPSPAN_MEMORY_TAKEN);
    return c10::DataPtr(data, data, &delete_block, device);
  }

  c10::DeleterFnPtr raw_deleter() const override { return &delete_block; }

  void copy_data(void* to, const void* from, size_t count) const override { inner_.load()->copy_data(to, from, count); }

 private:
  static void delete_block(void* block) {
    Memory& memory = instance();
    size_t size = 0;
    if (memory.blocks_.take(block, &size)) {
      memory.total_.fetch_sub(static_cast<int64_t>(size));
      memory.report(block, static_cast<int64_t>(size), OPSPAN_MEMORY_GIVEN_BACK);
    }
    memory.deleter_.load()(block);
  }

  void report(void* block, int64_t bytes, uint32_t what) {
    opspan_memory event = {};
    event.what = what;
    event.device_type = static_cast<int32_t>(c10::DeviceType::CPU);
    event.device_index = -1;
    event.address = reinterpret_cast<uint64_t>(block);
    event.bytes = bytes;
    event.total = total_.load(std::memory_order_relaxed);
    for (const auto& to : callbacks_) {
      if (Callback callback = to.load(std::memory_order_acquire)) callback(&event);
    }
  }

  std::mutex control_;
  std::atomic<c10::Allocator*> inner_{nullptr};
  std::atomic<c10::DeleterFnPtr> deleter_{nullptr};
  std::array<std::atomic<Callback>, OPSPAN_SINK_COUNT> callbacks_ = {};
  std::atomic<int64_t> total_{0};
  Blocks blocks_;
};

}  // namespace opspan
