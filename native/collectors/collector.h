// The common code of the collectors for NVTX and ITT: the decision whether to collect, names that are never freed, the
// state of a thread, and open ranges. Nothing in this folder knows about torch. It works for any program that uses NVTX
// or ITT.
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

// Returns whether events are recorded in this process: OPSPAN_CAPTURE_DIR must name a folder that can be written to.
// The first call opens the file.
bool is_collecting();

// Guards everything that clients register: names, domains, schemas, counters. A thread that holds it may write units,
// but a thread that is writing units must not lock it. A forked process can use it too.
std::mutex& registry();

// The most bytes that a client's payload, array or text can have. A larger size means that the client never set this
// field.
inline constexpr size_t kMostBytes = 1 << 20;

// All Constants. As NVTX's handle of a registered string, clients get the address of its Constant.
inline constinit Handles<capture::Constant> g_constants;

// Returns the Constant of a text. A text has only one, which is never freed, because clients keep handles to it.
capture::Constant* constant(std::string_view text);
capture::Constant* constant_locked(std::string_view text);  // the caller holds registry()

std::string to_utf8(const wchar_t* text);

// This thread's object of type T. A pthread key destroys it, because destructors of the program's thread_locals may
// still emit ranges, and a key's destructor runs after them. If the object is needed after that, it is made again.
template <typename T>
inline constinit thread_local T* t_state = nullptr;

// Returns this thread's object of type T. A thread may keep the address of t_state<T> as long as the thread lives.
template <typename T>
T& thread_state(T*& state) {
  if (!state) [[unlikely]] {
    static const pthread_key_t key = [] {
      return capture::make_key([](void* pointer) {
        t_state<T> = nullptr;
        delete static_cast<T*>(pointer);
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

// The open ranges of a thread. A program may begin ranges and never end them. If too many are open, the outermost
// ranges are given up; they stay open in the capture.
template <typename Frame>
class Stack {
 public:
  // Adds a range and returns its zero-based level. `fill` sets the range's fields in place, because a copy would have
  // to wait for the words that were just written.
  template <typename Fill>
  int push(Fill&& fill) {
    if (frames_.size() == 2 * kKept) [[unlikely]]
      give_up_outermost();
    fill(frames_.emplace_back());
    return depth() - 1;
  }
  // Removes the innermost range for which `matches` is true. If no range matches but some were given up, removes one of
  // these and sets *frame to an empty frame. Otherwise returns false.
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
    std::for_each(frames_.begin(), end, [](const Frame& frame) { capture::give_up_range(frame.place); });
    frames_.erase(frames_.begin(), end);
    given_up_ += kKept;
  }

  // When twice this number of ranges are open, the outer half of them is given up.
  static constexpr size_t kKept = 1 << 16;
  std::vector<Frame> frames_;
  size_t given_up_ = 0;
};

// Returns the time for all units of this thread. All times of a thread must come from one clock; otherwise a range
// could end before it begins. This function opens no file: in a forked process that has written nothing yet, the end of
// a range alone is not worth a file.
inline int64_t now(capture::Log* const* logs = capture::t_logs) { return *logs ? (*logs)->now() : capture::now_ns(); }

inline capture::Event event_of(capture::Unit kind, capture::Source source) {
  capture::Event event{};
  event.kind = static_cast<uint8_t>(kind);
  event.source = static_cast<uint8_t>(source);
  return event;
}

}  // namespace opspan::collectors
