// What the NVTX and the ITT side share: the decision to collect, names that live for good, state of a thread, ranges
// that are open. Nothing in this folder knows of torch; it serves any program that uses NVTX or ITT.
#pragma once

#include <pthread.h>

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "capture/thread_key.h"
#include "capture/writer.h"
#include "collectors/handles.h"

namespace opspan::collectors {

// Are events recorded in this process? Yes when OPSPAN_CAPTURE_DIR names a folder that can be written to. The first
// question opens the file.
bool is_collecting();

// Guards all that is registered: names, domains, schemas, counters. Held while units are written, never the other way
// round, and kept whole across fork.
std::mutex& registry();

// One payload, array or text of a client's has no more bytes than this: a size above is a field that was never set.
inline constexpr size_t kMostBytes = 1 << 20;

// Every Constant: NVTX's handles of registered strings are their addresses.
inline constinit Handles<capture::Constant> g_constants;

// The one Constant of a text. Never freed: clients keep handles to it.
capture::Constant* constant(std::string_view text);
capture::Constant* constant_locked(std::string_view text);  // for those who hold the registry

std::string to_utf8(const wchar_t* text);

// This thread's T. Destroyed by a pthread key and not by thread_local, since thread_locals of the program may still
// emit ranges while they are destroyed; a T needed after its own end is simply made again.
template <typename T>
inline constinit thread_local T* t_state = nullptr;

// For a thread that has looked up where that is: it is there as long as the thread lives.
template <typename T>
T& thread_state(T*& state) {
  if (!state) [[unlikely]] {
    static const pthread_key_t key = [] {
      return capture::make_key([](void* it) {
        t_state<T> = nullptr;
        delete static_cast<T*>(it);
      });
    }();
    state = new T;
    pthread_setspecific(key, state);
  }
  return *state;
}

template <typename T>
T& thread_state() {
  return thread_state(t_state<T>);
}

// The open ranges of a thread. A program that begins and never ends keeps being served: where there are too many, the
// outermost are forgotten, and stay open in the capture.
template <typename Frame>
class Stack {
 public:
  // Zero-based level of the new range, which `fill` is given to fill in. Not copied from elsewhere: the processor would
  // have to wait for what was just written there, word by word.
  template <typename Fill>
  int push(Fill&& fill) {
    if (frames_.size() == 2 * kKept) [[unlikely]]
      give_up_outermost();
    fill(frames_.emplace_back());
    return depth() - 1;
  }
  // Takes the innermost range for which `wanted` is true. False when there is none.
  template <typename Matches>
  bool pop(Frame* frame, Matches matches) {
    for (size_t i = frames_.size(); i-- > 0;) {
      if (!matches(frames_[i])) continue;
      *frame = frames_[i];
      frames_.erase(frames_.begin() + static_cast<ptrdiff_t>(i));
      return true;
    }
    if (!given_up_) return false;
    --given_up_;
    *frame = {};
    return true;
  }
  int depth() const { return static_cast<int>(frames_.size() + given_up_); }
  Frame* top() { return frames_.empty() ? nullptr : &frames_.back(); }
  std::vector<Frame>& frames() { return frames_; }

 private:
  [[gnu::noinline]] void give_up_outermost() {
    auto end = frames_.begin() + kKept;
    std::for_each(frames_.begin(), end, [](const Frame& it) { capture::give_up_range(it.place); });
    frames_.erase(frames_.begin(), end);
    given_up_ += kKept;
  }

  static constexpr size_t kKept = 1 << 16;  // and up to twice as many
  std::vector<Frame> frames_;
  size_t given_up_ = 0;
};

// The time of all that this thread writes or tells: one clock, or what is begun by one could end before that by
// another. It opens no file: in a fork that has written nothing yet an end alone is no reason for one.
inline int64_t now(capture::Log* const* logs = capture::t_logs) { return *logs ? (*logs)->now() : capture::now_ns(); }

inline capture::Event event_of(capture::Unit kind, capture::Source source) {
  capture::Event event{};
  event.kind = static_cast<uint8_t>(kind);
  event.source = static_cast<uint8_t>(source);
  return event;
}

}  // namespace opspan::collectors
