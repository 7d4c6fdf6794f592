// The ranges that one thread has open at one sink, in the order in which they were opened there.
//
// A tool keeps a stack of ranges for each thread, and an end always pops the top of that stack. But ranges do not
// always end in that order: a generator may be dropped, or an async op may end on another thread. So a frame is looked
// up by its key. If it is not on top, its end is only noted. Once it is on top, it is popped at the tool. Only the
// thread to which the frames belong pushes and pops; another thread may only find a frame and note its end.
//
// A program may push and never pop. So the frames are in a ring. If more ranges are open than the ring can hold, the
// outermost ranges are given up. They stay open at the tool, and can no longer be ended.
#pragma once

#include <atomic>
#include <cstdint>

#include "capture/writer.h"

namespace opspan {

// Tells whether and where a range ended before its frame could be popped: on its own thread (kHere), on another thread
// (kElsewhere), or not at all (kNone).
enum class End : uint8_t { kNone, kHere, kElsewhere };

// The Python functions that an op was called in.
struct Functions {
  const void* python = nullptr;  // the value of opspan_op::python
  int64_t instruction = 0;
  capture::Constant* text = nullptr;  // null if there is no text that ranges inside this one can use
};

// An open range. Most ranges need only the first of its two cache lines.
struct alignas(64) Frame {
  std::atomic<const void*> key{nullptr};  // torch's RecordFunction; null for a user's own range
  std::atomic<uint64_t> id{0};            // op id, or the number of a user's own range
  std::atomic<End> end{End::kNone};
  uint8_t where = 0;           // set by the sink: how it opened the range; 0: it did not open the range
  bool has_functions = false;  // true if `functions` is set
  capture::Place place;
  alignas(64) Functions functions;

  void set_functions(const Functions& value) {
    functions = value;
    has_functions = true;
  }

  bool has_ended() const { return end.load(std::memory_order_acquire) != End::kNone; }
  bool matches(const void* other_key, uint64_t other_id) const {
    return key.load(std::memory_order_relaxed) == other_key && id.load(std::memory_order_relaxed) == other_id &&
           end.load(std::memory_order_relaxed) == End::kNone;
  }
};

class Frames {
 public:
  // Returns the frame that the next push() adds; null if there is no memory. The caller sets `where` and `place`. If
  // the ring is full, calls `give_up` for the outermost frame, which has the same place in the ring.
  template <class GiveUp>
  Frame* next(const void* key, uint64_t id, GiveUp&& give_up) {
    const uint64_t depth = depth_.load(std::memory_order_relaxed);
    Frame* frame = next_;
    if (!frame && !(frame = next_ = begin_block(depth))) return nullptr;
    if (depth - bottom_.load(std::memory_order_relaxed) == kBlocks * kBlock) [[unlikely]] {
      give_up(*frame);
      bottom_.fetch_add(1, std::memory_order_relaxed);
    }
    frame->key.store(key, std::memory_order_relaxed);
    frame->id.store(id, std::memory_order_relaxed);
    frame->end.store(End::kNone, std::memory_order_relaxed);
    frame->where = 0;
    frame->has_functions = false;
    return frame;
  }

  void push() {
    const uint64_t depth = depth_.load(std::memory_order_relaxed) + 1;
    next_ = depth % kBlock ? next_ + 1 : nullptr;
    depth_.store(depth, std::memory_order_release);
  }

  Frame* top() const {
    const uint64_t depth = depth_.load(std::memory_order_relaxed);
    if (depth == bottom_.load(std::memory_order_relaxed)) return nullptr;
    return depth % kBlock ? next_ - 1 : at(depth - 1);
  }

  // Returns how many frames are open. Only the thread itself may call this.
  uint32_t depth() const { return depth_.load(std::memory_order_relaxed); }

  void pop() {
    const uint64_t depth = depth_.load(std::memory_order_relaxed) - 1;
    next_ = (depth + 1) % kBlock ? next_ - 1 : at(depth);
    depth_.store(depth, std::memory_order_release);
  }
  void clear() {
    bottom_.store(0, std::memory_order_relaxed);
    depth_.store(0, std::memory_order_release);
    next_ = nullptr;
  }

  // Pops the frames on top whose ranges have ended.
  template <class Pop>
  void pop_ended(Pop&& pop_at_sink) {
    if (Frame* frame = top(); frame && frame->has_ended()) [[unlikely]]
      pop_all_ended(pop_at_sink);
  }

  // Finds an open range; any thread may call this.
  Frame* find(const void* key, uint64_t id) const {
    uint64_t bottom = bottom_.load(std::memory_order_relaxed);
    for (uint64_t i = depth_.load(std::memory_order_acquire); i > bottom;) {
      --i;
      if (Frame* frame = at(i); frame->matches(key, id)) return frame;
    }
    return nullptr;
  }

  // Returns the innermost open range that the user began (a range without a key).
  Frame* innermost_user_range() const {
    uint64_t bottom = bottom_.load(std::memory_order_relaxed);
    for (uint64_t i = depth_.load(std::memory_order_relaxed); i > bottom;) {
      Frame* frame = at(--i);
      if (!frame->key.load(std::memory_order_relaxed) && frame->end.load(std::memory_order_relaxed) == End::kNone) {
        return frame;
      }
    }
    return nullptr;
  }

 private:
  static constexpr uint32_t kBlock = 64;
  static constexpr uint32_t kBlocks = 256;

  Frame* at(uint64_t i) const { return blocks_[i / kBlock % kBlocks].load(std::memory_order_relaxed) + i % kBlock; }
  template <class Pop>
  [[gnu::cold, gnu::noinline]] void pop_all_ended(Pop& pop_at_sink) {
    for (Frame* frame = top(); frame && frame->has_ended(); frame = top()) {
      pop_at_sink(*frame);
      pop();
    }
  }
  [[gnu::cold]] Frame* begin_block(uint64_t depth);

  std::atomic<uint64_t> depth_{0};            // depth of the next frame; frame i is at i modulo the ring's size
  std::atomic<uint64_t> bottom_{0};           // all frames below this depth were given up
  Frame* next_ = nullptr;                     // the frame at depth_; null if its block is not allocated yet
  std::atomic<Frame*> blocks_[kBlocks] = {};  // never freed, because another thread may be reading
};

}  // namespace opspan
