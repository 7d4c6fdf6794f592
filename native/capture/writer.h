// Writes capture files (format.h). A process has one file, and one writer, for each session. Every thread writes chunks
// of its own.
//
// The hot path is log() -> append() -> end_range(): no locks, no allocation, no system call. Steps that block (a new
// chunk, a name not seen before) are rare, and need the one mutex of the process. The code is linked into two shared
// libraries, with hidden symbols, so each library has its own writers.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "capture/caches.h"
#include "capture/clock.h"
#include "capture/format.h"
#include "capture/halves.h"
#include "capture/names.h"
#include "capture/place.h"

namespace opspan::capture {

struct Session;  // one capture file (session.h)
class Log;
struct Process;
class DroppedSegments;

// The limits of a rolling recording. Older data may be dropped as soon as the newer data reach one of the limits. 0
// means no limit.
struct KeepLimits {
  int64_t ns = 0;
  uint64_t bytes = 0;
  uint64_t steps = 0;
  explicit operator bool() const { return ns || bytes || steps; }
};

inline constexpr uint32_t kWriters = 4;  // number of writers; the default is number 0

// Begins a file in `folder`, which must exist. If that fails, returns false and writes a sentence to *error.
bool start(const char* folder, Producer producer, std::string* path, std::string* error, uint32_t writer = 0,
           const KeepLimits& keep = {});
// Marks the file as closed; other threads may still be writing. Returns the number of units that were lost for lack of
// space. A normal exit of the process calls it too.
uint64_t stop(uint32_t writer = 0);
// For rolling recordings. step() counts a training step. No file is deleted while hold() is on.
void step(uint32_t writer);
void hold(uint32_t writer, bool on);

// The state that the hot path reads.
inline constinit std::atomic<uint32_t> g_epochs[kWriters] = {};      // 0: off; on a change every log checks its state
inline constinit std::atomic<uint32_t> g_recordings[kWriters] = {};  // 0: off; the same in all segments of a recording
inline constinit thread_local Log* t_logs[kWriters] = {};            // the address stays valid as long as the thread

// Returns the number of the epoch; 0: off. It changes with every start, fork and segment, and when the disk is full.
inline uint32_t epoch(uint32_t writer = 0) { return g_epochs[writer].load(std::memory_order_relaxed); }
// Returns the number of the recording; 0: off. It changes with each start, and with a forked process's first event.
inline uint32_t recording_id(uint32_t writer = 0) { return g_recordings[writer].load(std::memory_order_relaxed); }

// A text that lives as long as the program (a registered string, a literal). Its id is looked up once for each file.
class Constant {
 public:
  explicit Constant(std::string text) : text_(std::move(text)) {}
  const std::string& text() const { return text_; }

 private:
  friend class Log;
  const std::string text_;
  std::atomic<uint64_t> cached_{0};  // Session::id << 32 | id of the text
};

// The writer of one thread, which appends units to chunks of its own.
class Log {
 public:
  // Returns the id of a text. Repeated texts come from a cache of this thread.
  uint32_t intern(std::string_view text);
  uint32_t intern(Constant& constant) {
    uint64_t cached = constant.cached_.load(std::memory_order_relaxed);
    return cached >> 32 == file_ ? static_cast<uint32_t>(cached) : look_up(constant);
  }
  uint32_t intern(const OpName& name) {
    const uint32_t id = names_.find(name);
    return id ? id : look_up(name);
  }
  // Returns the ids of the texts that stand for these numbers, or calls `make` if the thread does not remember them.
  template <class Make>
  Ids recall(uint32_t what, const int64_t* words, size_t count, Make&& make) {
    return ids_.get(file_, what, words, count, make);
  }

  // Writes a unit. A kRange without an end must be ended or given up later (place.h).
  Place append(const Event& event);
  Place append(const Block& block) {
    return append_half(0, [&](Half* at) { write_block(at, block); });
  }
  // Appends a range of torch's with inputs, which starts now. If this thread knows a model for these inputs, the range
  // refers to that model, and nothing else is looked up. Otherwise `make` fills in the event.
  template <class Make>
  Place append(BriefRange& range, Digest inputs, Make&& make);
  [[gnu::always_inline]] Place append(const BriefRange& range) {
    if (!range.is_short()) [[unlikely]]
      return append_full(range);
    return append_range(range.start_ns, [&](Half* at) { write_short(at, range); });
  }

  // Adds values to a unit of this thread: 64-bit words (integers, doubles) or, for kBytes, bytes. Values that do not
  // fit into one unit go into several, one after the other. The last unit of a blob is never full.
  void attribute(uint64_t owner, uint32_t key, AttributeType type, const void* values, size_t count,
                 uint16_t flags = 0);
  void attribute_text(const Place& place, uint32_t key, uint32_t text);
  void blob(const Place& place, const void* bytes, size_t count, uint32_t schema = 0);
  void ids(const Place& place, const uint64_t id[3], const uint64_t parent[3]);

  // Counts data that a client passed and that could not be recorded.
  void count_lost();

  uint32_t tid() const { return tid_; }

  // Returns the time for a unit of this thread. A thread must use either now() or now_ns() for all its units, because
  // they differ by some nanoseconds.
  int64_t now() {
    int64_t ns = clock_.now();
    if (ns >= due_ns_) [[unlikely]]
      roll(ns);
    return ns;
  }

 private:
  friend Log* log(uint32_t, Log* const*);
  friend Log* open_log(uint32_t);
  friend void end_range(const Place&, int64_t, Log* const*);
  friend void end_slowly(const Place&, int64_t);
  friend void give_up_range(const Place&);
  friend void forget_logs(void*);

  struct Chunk {
    Half* begin = nullptr;  // its first Half; the chunk's header is the cache line before it
    uint64_t first = 0;     // number of its first Half
    uint64_t halves = 0;    // number of Halves, both written and free
    uint32_t open = 0;      // number of ranges without an end; the chunk stays mapped for them
    uint64_t offset = 0;    // offset of the chunk's header in the file
    uint32_t file = 0;      // Session::id of the file
    size_t bytes = 0;       // number of bytes that are mapped
    bool holds(uint64_t number) const { return number - first < halves; }
    Half* at(uint64_t number) const { return begin + (number - first); }
    Half* end() const { return begin + halves; }
    ChunkHeader* header() const { return reinterpret_cast<ChunkHeader*>(begin) - 1; }
  };
  struct alignas(64) TextEntry {  // one cache line if the text is as short as most names of ops
    uint64_t hash = 0;
    uint32_t length = 0;
    uint32_t id = 0;  // 0: empty
    char text[40];    // the text, if it is short
    std::unique_ptr<char[]> long_text;
    const char* begin() const { return length <= sizeof(text) ? text : long_text.get(); }
  };
  static constexpr size_t kTextEntries = 512;  // number of entries, which are used in pairs; a power of two
  static constexpr size_t kLongestText = 4096;
  static constexpr uint64_t kOnce = ~uint64_t{0};  // value of Model::number while only one range had these fields
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
  Place append_full(const Event& event);
  [[gnu::cold]] Place append_full(const BriefRange& range);
  uint64_t model_for(const SharedFields& shared);
  Place append_small(const Event& event, uint64_t* model);
  bool is_in_reach(uint64_t model) const { return !((number_ - model) >> 31); }
  bool lose_unit(Process& p, DroppedSegments& dropped, bool was_open);
  void fetch_next_part();
  uint32_t intern_slowly(std::string_view text);
  [[gnu::cold]] uint32_t look_up(const OpName& name);
  [[gnu::cold]] uint32_t look_up(Constant& constant);
  void end(const Place& place, int64_t end_ns);
  [[gnu::cold]] bool end_in_old_chunk(const Place& place, int64_t end_ns);
  [[gnu::cold]] void append_end(const Place& place, int64_t end_ns);
  static bool write_end(Chunk& chunk, const Place& place, int64_t end_ns);
  static void unmap(const Chunk& chunk);

  Half* next_ = nullptr;
  Half* limit_ = nullptr;       // end of the part of the chunk that is ready; equal to next_ once the disk is full
  uint64_t number_ = 0;         // number of the unit at next_
  uint64_t owner_ = 0;          // recording << 32 | serial; each log of a process has its own serial
  int64_t due_ns_ = INT64_MAX;  // time at which the next segment begins
  uint32_t file_ = 0;           // Session::id of the file
  uint32_t epoch_ = 0;
  uint32_t tid_ = 0;
  const uint32_t writer_;
  Chunk chunk_;
  Clock clock_;
  std::vector<Chunk> old_;
  std::shared_ptr<Session> session_;
  std::unique_ptr<TextEntry[]> texts_;
  Names<uint32_t> names_;
  Table<Model, 1024> models_;              // allocated when the first range comes that is not short
  Table<InputsModel, 4096> input_models_;  // allocated when the first range with inputs comes
  IdCache ids_;
};

[[gnu::cold]] Log* open_log(uint32_t writer);
[[gnu::cold]] void end_slowly(const Place& place, int64_t end_ns);

// Returns this thread's log; null when recording is off.
inline Log* log(uint32_t writer = 0, Log* const* logs = t_logs) {
  Log* log = logs[writer];
  if (log && log->epoch_ == g_epochs[writer].load(std::memory_order_acquire)) [[likely]] {
    return log;
  }
  return open_log(writer);
}

template <class Write>
inline Place Log::append_half(int64_t start_ns, Write&& write) {
  if (next_ >= limit_ && !grow()) [[unlikely]]  // if a half was skipped, next_ may be past limit_
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
inline Place Log::append(BriefRange& range, Digest inputs, Make&& make) {
  const uint64_t flags = range.flags & ~kValueMask;
  inputs.add(uint64_t{range.name} << 32 | flags << 16 | range.category, file_);
  auto [cached, is_known] =
      input_models_.slot(inputs.first, file_, [&](const InputsModel& candidate) { return candidate.inputs == inputs; });
  if (is_known && is_in_reach(cached->model) && range.is_short()) [[likely]] {
    range.start_ns = now();
    return append_range(range.start_ns, [&](Half* at) { write_like(at, range, cached->model); });
  }
  Event event = full_event(range);
  make(event);
  event.range.start_ns = now();
  if (!is_small(event)) return append_full(event);
  uint64_t model = kLost;
  Place place = append_small(event, &model);
  if (cached && model < kLost) *cached = {inputs, model, file_};
  return place;
}

// Writes the end time of a range into the unit of the range. With an end of 0, the range stays open for good. Returns
// false if the unit has no room for this end time.
inline bool Log::write_end(Chunk& chunk, const Place& place, int64_t end_ns) {
  if (chunk.open) --chunk.open;
  Half* at = chunk.at(place.number);
  if (end_ns && place.start_ns) return write_half_end(at, place.start_ns, end_ns);
  if (end_ns) __atomic_store_n(&reinterpret_cast<Event*>(at)->range.end_ns, end_ns, __ATOMIC_RELAXED);
  return true;
}

inline void Log::end(const Place& place, int64_t end_ns) {
  const bool is_written =
      chunk_.holds(place.number) ? write_end(chunk_, place, end_ns) : end_in_old_chunk(place, end_ns);
  if (!is_written) [[unlikely]]
    append_end(place, end_ns);
}

// Ends a kRange. On the range's own thread, writes the end into its unit; on another thread, appends a kEnd unit. Does
// nothing if the file of the range is no longer the current one, because the recording was stopped or the process was
// forked. An end of 0 means the current time of this thread's log.
inline void end_range(const Place& place, int64_t end_ns = 0, Log* const* logs = t_logs) {
  if (!place) return;
  Log* log = logs[place.writer];
  if (log && log->owner_ == place.owner && log->epoch_ == g_epochs[place.writer].load(std::memory_order_acquire))
      [[likely]] {
    log->end(place, end_ns ? end_ns : log->now());
  } else {
    end_slowly(place, end_ns);
  }
}

// Gives up a kRange on its own thread after another thread has ended it, so that its chunk need not stay mapped.
void give_up_range(const Place& place);

}  // namespace opspan::capture
