// Writes capture files (format.h). One file a process and session; every thread writes chunks of its own. A process
// can write several files at a time, each by a writer of its own.
//
// Hot path: log() -> append() -> finish(): no locks, no allocation, no system call. Whatever blocks (a new chunk,
// a name not seen before) happens under one mutex of the process, rarely. The code is linked, hidden, into two
// shared libraries; each has writers of its own.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "capture/clock.h"
#include "capture/format.h"
#include "capture/halves.h"
#include "capture/names.h"
#include "capture/place.h"
#include "capture/recall.h"

namespace opspan::capture {

struct Session;  // one file; session.h
class Log;
struct Process;
class Dropped;

// What a rolling recording keeps, at least; of several that are given, whichever is least. 0: not given.
struct Keep {
  int64_t ns = 0;
  uint64_t bytes = 0;
  uint64_t steps = 0;
  explicit operator bool() const { return ns || bytes || steps; }
};

inline constexpr uint32_t kWriters = 4;  // they are known by their number; who needs but one takes the first

// Begins a file in `folder`, which must exist. False, with a sentence in *error, when that cannot be.
bool start(const char* folder, Producer producer, std::string* path, std::string* error, uint32_t writer = 0,
           const Keep& keep = {});
// Marks the file as closed; other threads may be writing meanwhile. The number of units that were lost for want of
// space. Called at the process' orderly end too.
uint64_t stop(uint32_t writer = 0);
// Of a rolling recording: a training step is over; its files stay as long as somebody copies them.
void step(uint32_t writer);
void hold(uint32_t writer, bool on);

// The part of the state that the hot path reads.
inline constinit std::atomic<uint32_t> g_epochs[kWriters] = {};  // 0: off; changes whenever every log must look again
inline constinit std::atomic<uint32_t> g_recordings[kWriters] = {};  // 0: off; the same for all segments
inline constinit thread_local Log* t_logs[kWriters] = {};  // a thread may keep its address, which costs less to ask

// 0: off. Another number after every start and fork, with every segment, and once the disk is full.
inline uint32_t session(uint32_t writer = 0) { return g_epochs[writer].load(std::memory_order_relaxed); }
// 0: off. Another number after every start, and after a fork's first event.
inline uint32_t recording(uint32_t writer = 0) { return g_recordings[writer].load(std::memory_order_relaxed); }

// A text that lives as long as the program (a registered string, a literal): its id is looked up once a file.
class Constant {
 public:
  explicit Constant(std::string text) : text_(std::move(text)) {}
  const std::string& text() const { return text_; }

 private:
  friend class Log;
  const std::string text_;
  std::atomic<uint64_t> known_{0};  // Session::id << 32 | id
};

// A thread's own end of the file.
class Log {
 public:
  // The id of a text. Repeats come from a cache of this thread.
  uint32_t intern(std::string_view text);
  uint32_t intern(Constant& constant) {
    uint64_t known = constant.known_.load(std::memory_order_relaxed);
    return known >> 32 == file_ ? static_cast<uint32_t>(known) : learn(constant);
  }
  uint32_t intern(const OpName& name) {
    const uint32_t id = names_.find(name);
    return id ? id : learn(name);
  }
  // Ids of texts that stand for these words: those of `make`, unless this thread still knows them.
  template <class Make>
  Ids recall(uint32_t what, const int64_t* words, size_t count, Make&& make) {
    return recall_.get(file_, what, words, count, make);
  }

  // Writes a unit. A kRange without an end should be finished or released later.
  Place append(const Event& event);
  Place append(const Block& block) {
    return append_half(0, [&](Half* at) { write_block(at, block); });
  }
  // A range of torch's with inputs; its start is now. Where the numbers that tell of them (`inputs`) came with such a
  // range before, no more is looked up; else `make` fills in the event.
  template <class Make>
  Place append(Brief& range, Digest inputs, Make&& make);
  [[gnu::always_inline]] Place append(const Brief& range) {
    if (!range.is_short()) [[unlikely]]
      return append_whole(range);
    return append_range(range.start_ns, [&](Half* at) { write_short(at, range); });
  }

  // More about a unit of this thread. Values are 64-bit words (integers, doubles) or, for kBytes, bytes; what does not
  // fit into a unit takes several, one after the other. A blob ends with a unit that is not full.
  void attribute(uint64_t owner, uint32_t key, AttributeType type, const void* values, size_t count,
                 uint16_t flags = 0);
  void attribute_text(const Place& place, uint32_t key, uint32_t text);
  void blob(const Place& place, const void* bytes, size_t count, uint32_t schema = 0);
  void ids(const Place& place, const uint64_t id[3], const uint64_t parent[3]);

  // Counts what a client said and could not be taken.
  void lose();

  uint32_t tid() const { return tid_; }

  // The time of a unit of this thread. A thread keeps to this one or to now_ns(): they differ by some nanoseconds.
  int64_t now() {
    int64_t ns = clock_.now();
    if (ns >= due_ns_) [[unlikely]]
      roll(ns);
    return ns;
  }

 private:
  friend Log* log(uint32_t, Log* const*);
  friend Log* open_log(uint32_t);
  friend void finish(const Place&, int64_t, Log* const*);
  friend void finish_slowly(const Place&, int64_t);
  friend void release(const Place&);
  friend void forget_logs(void*);

  struct Chunk {
    Half* begin = nullptr;  // its header is the line before
    uint64_t first = 0;     // number of its first half
    uint64_t halves = 0;    // written or to be written
    uint32_t open = 0;      // ranges without an end: the chunk stays mapped for them
    uint64_t offset = 0;    // of its header, in the file
    uint32_t file = 0;      // Session::id
    size_t bytes = 0;       // mapped
    bool holds(uint64_t number) const { return number - first < halves; }
    Half* at(uint64_t number) const { return begin + (number - first); }
    Half* end() const { return begin + halves; }
    ChunkHeader* header() const { return reinterpret_cast<ChunkHeader*>(begin) - 1; }
  };
  struct alignas(64) Known {  // one line, where the text is no longer than most names of ops
    uint64_t hash = 0;
    uint32_t length = 0;
    uint32_t id = 0;  // 0: empty
    char text[40];    // if it fits, else
    std::unique_ptr<char[]> long_text;
    const char* begin() const { return length <= sizeof(text) ? text : long_text.get(); }
  };
  static constexpr size_t kKnown = 512;  // pairs of two; a power of two
  static constexpr size_t kLongestKnown = 4096;
  static constexpr uint64_t kOnce = ~uint64_t{0};  // seen, and not written
  static constexpr uint64_t kLost = kOnce - 1;

  explicit Log(uint32_t writer);
  ~Log();
  void attach(std::shared_ptr<Session> session, uint32_t epoch, uint32_t oldest);
  void detach();
  void leave_segment(uint32_t oldest);
  void leave_chunk();
  void forget_texts();
  [[gnu::cold]] void roll(int64_t ns);
  void skip_half() {
    if (!(reinterpret_cast<uintptr_t>(next_) & kHalfBytes)) return;
    ++next_;
    ++number_;
  }
  [[gnu::cold]] bool grow();
  template <class Write>
  Place append_half(int64_t start_ns, Write&& write);
  template <class Write>
  Place append_range(int64_t start_ns, Write&& write);
  Place append_whole(const Event& event);
  [[gnu::cold]] Place append_whole(const Brief& range);
  uint64_t model_for(const Common& common);
  Place append_small(const Event& event, uint64_t* model);
  bool reaches(uint64_t model) const { return !((number_ - model) >> 31); }
  bool give_up(Process& p, Dropped& dropped, bool is_news);
  void go_ahead();
  uint32_t intern_slowly(std::string_view text);
  [[gnu::cold]] uint32_t learn(const OpName& name);
  [[gnu::cold]] uint32_t learn(Constant& constant);
  void end(const Place& place, int64_t end_ns);
  [[gnu::cold]] bool end_in_old(const Place& place, int64_t end_ns);
  [[gnu::cold]] void end_apart(const Place& place, int64_t end_ns);
  static bool end_in(Chunk& chunk, const Place& place, int64_t end_ns);
  static void unmap(const Chunk& chunk);

  Half* next_ = nullptr;
  Half* limit_ = nullptr;       // the end of what is fetched of the chunk, or next_ once the disk is full
  uint64_t number_ = 0;         // of next_
  uint64_t owner_ = 0;          // recording << 32 | serial: no two logs of a process share one
  int64_t due_ns_ = INT64_MAX;  // when the next segment is to begin
  uint32_t file_ = 0;           // Session::id
  uint32_t epoch_ = 0;
  uint32_t tid_ = 0;
  const uint32_t writer_;
  Chunk chunk_;
  Clock clock_;
  std::vector<Chunk> old_;
  std::shared_ptr<Session> session_;
  std::unique_ptr<Known[]> known_;
  Names<uint32_t> names_;
  Table<Model, 1024> models_;  // from the first range on that is not short
  Table<Alike, 4096> alike_;   // from the first one on with inputs
  Recall recall_;
};

[[gnu::cold]] Log* open_log(uint32_t writer);
[[gnu::cold]] void finish_slowly(const Place& place, int64_t end_ns);

// This thread's log; null when capture is off.
inline Log* log(uint32_t writer = 0, Log* const* logs = t_logs) {
  Log* log = logs[writer];
  if (log && log->epoch_ == g_epochs[writer].load(std::memory_order_acquire)) [[likely]] {
    return log;
  }
  return open_log(writer);
}

template <class Write>
inline Place Log::append_half(int64_t start_ns, Write&& write) {
  if (next_ >= limit_ && !grow()) [[unlikely]]  // past it: a half was skipped there
    return {};
  write(next_++);
  return {owner_, number_++, start_ns, tid_, writer_};
}

template <class Write>
inline Place Log::append_range(int64_t start_ns, Write&& write) {
  Place place = append_half(start_ns, write);
  if (place) [[likely]]
    ++chunk_.open;
  return place;
}

template <class Make>
inline Place Log::append(Brief& range, Digest inputs, Make&& make) {
  const uint64_t flags = range.flags & ~kValueMask;
  inputs.add(uint64_t{range.name} << 32 | flags << 16 | range.category, file_);
  auto [alike, is_known] = alike_.slot(inputs.first, file_, [&](const Alike& it) { return it.all == inputs; });
  if (is_known && reaches(alike->model) && range.is_short()) [[likely]] {
    range.start_ns = now();
    return append_range(range.start_ns, [&](Half* at) { write_like(at, range, alike->model); });
  }
  Event event = whole(range);
  make(event);
  event.range.start_ns = now();
  if (!is_small(event)) return append_whole(event);
  uint64_t model = kLost;
  Place place = append_small(event, &model);
  if (alike && model < kLost) *alike = {inputs, model, file_};
  return place;
}

// An end of 0 leaves the range open and only gives up its place. False: the end has no room there.
inline bool Log::end_in(Chunk& chunk, const Place& place, int64_t end_ns) {
  if (chunk.open) --chunk.open;
  Half* at = chunk.at(place.number);
  if (end_ns && place.start_ns) return end_half(at, place.start_ns, end_ns);
  if (end_ns) __atomic_store_n(&reinterpret_cast<Event*>(at)->range.end_ns, end_ns, __ATOMIC_RELAXED);
  return true;
}

inline void Log::end(const Place& place, int64_t end_ns) {
  const bool is_told = chunk_.holds(place.number) ? end_in(chunk_, place, end_ns) : end_in_old(place, end_ns);
  if (!is_told) [[unlikely]]
    end_apart(place, end_ns);
}

// Ends a kRange: in place on its own thread, with a kEnd unit on another, not at all when its file is not the current
// one any more (stopped, or another process' since a fork). 0: now, as this thread's log has it.
inline void finish(const Place& place, int64_t end_ns = 0, Log* const* logs = t_logs) {
  if (!place) return;
  Log* log = logs[place.writer];
  if (log && log->owner_ == place.owner && log->epoch_ == g_epochs[place.writer].load(std::memory_order_acquire))
      [[likely]] {
    log->end(place, end_ns ? end_ns : log->now());
  } else {
    finish_slowly(place, end_ns);
  }
}

// For the range's own thread, when another one has finished it: its memory need not be kept for it.
void release(const Place& place);

}  // namespace opspan::capture
