#include "capture/writer.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "capture/guard.h"
#include "capture/say.h"
#include "capture/session.h"

namespace opspan::capture {
namespace {

struct Writer {
  std::shared_ptr<Session> session;  // null: off, or this is a fork that has written nothing yet
  std::shared_ptr<Session> parent;   // in such a fork: the session of the process it came from
};

// Never destroyed: threads may run while the process ends.
struct Process {
  std::mutex mutex;
  Writer writers[kWriters];
  bool prepared = false;
  pthread_key_t key = 0;
  uint32_t sessions = 0;
  uint32_t epochs = 0;
  uint32_t serials = 0;

  void new_epoch(uint32_t writer) { g_epochs[writer].store(++epochs ? epochs : ++epochs, std::memory_order_release); }
};

std::atomic<bool> g_forked[kWriters] = {};  // a fork that has written nothing yet

Process& process() {
  static Process* it = new Process;
  return *it;
}

void before_fork() { process().mutex.lock(); }
void after_fork_in_parent() { process().mutex.unlock(); }

// The child writes nothing here: most children exec at once. Its first event opens a file of its own.
void after_fork_in_child() {
  Process& p = process();
  for (uint32_t i = 0; i < kWriters; ++i) {
    if (!p.writers[i].session) continue;
    p.writers[i].parent = std::move(p.writers[i].session);
    g_forked[i].store(true, std::memory_order_relaxed);
    p.new_epoch(i);
  }
  p.mutex.unlock();
}

}  // namespace

// Of the thread that ends.
void forget_logs(void*) {
  for (Log*& log : t_logs) delete std::exchange(log, nullptr);
}

namespace {

void prepare_process(Process& p) {
  if (p.prepared) return;
  p.prepared = true;
  // A key and not a thread_local destructor: keys are emptied last, and again when an event came after that.
  p.key = make_key(forget_logs);
  pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

// With the mutex held.
bool open_session(Process& p, uint32_t writer, std::string folder, Producer producer, const FileHeader* parent,
                  std::string* error) {
  auto session = std::make_shared<Session>(std::move(folder), producer, parent);
  session->id = ++p.sessions;
  if (!session->open(error)) return false;
  p.writers[writer].session = std::move(session);
  p.new_epoch(writer);
  return true;
}

// With the mutex held: the first event after a fork.
void continue_after_fork(Process& p, uint32_t writer) {
  std::shared_ptr<Session> parent = std::move(p.writers[writer].parent);
  g_forked[writer].store(false, std::memory_order_relaxed);
  std::string error;
  if (open_session(p, writer, parent->folder, parent->producer, parent->header, &error)) return;
  g_epochs[writer].store(0, std::memory_order_release);
  say(error + ": this process records nothing, the program goes on");
}

// With the mutex held.
uint64_t stop_held(Process& p, uint32_t writer) {
  g_epochs[writer].store(0, std::memory_order_release);
  g_forked[writer].store(false, std::memory_order_relaxed);
  p.writers[writer].parent.reset();
  std::shared_ptr<Session> session = std::move(p.writers[writer].session);
  if (!session) return 0;
  session->close();
  return __atomic_load_n(&session->header->lost, __ATOMIC_RELAXED);
}

// A thread that stands still with the mutex (exit from a signal handler) must not keep the process from ending: then
// the file is left as after a kill, with all that was recorded.
__attribute__((destructor)) void close_at_exit() {
  Process& p = process();
  for (int tries = 0; !p.mutex.try_lock(); ++tries) {
    if (tries == 1000) return;
    usleep(1000);
  }
  for (uint32_t i = 0; i < kWriters; ++i) stop_held(p, i);
  p.mutex.unlock();
}

}  // namespace

bool start(const char* folder, Producer producer, std::string* path, std::string* error, uint32_t writer) {
  look_at_counter();
  Process& p = process();
  std::lock_guard lock(p.mutex);
  prepare_process(p);
  if (p.writers[writer].session || p.writers[writer].parent) {
    *error = "a capture is already on";
    return false;
  }
  // Absolute, for the sake of forks that change their directory first.
  std::unique_ptr<char, decltype(&free)> whole(realpath(folder, nullptr), &free);
  if (!whole) {
    *error = "cannot write to the folder " + std::string(folder) + ": " + strerror(errno);
    return false;
  }
  if (!open_session(p, writer, whole.get(), producer, nullptr, error)) return false;
  *path = p.writers[writer].session->path;
  return true;
}

uint64_t stop(uint32_t writer) {
  Process& p = process();
  std::lock_guard lock(p.mutex);
  return stop_held(p, writer);
}

Log::Log(uint32_t writer)
    : tid_(static_cast<uint32_t>(syscall(SYS_gettid))), writer_(writer), known_(new Known[kKnown]) {}

Log::~Log() { detach(); }

void Log::unmap(const Chunk& chunk) {
  if (chunk.begin) unmap_guarded(chunk.begin - 1, (chunk.units + 1) * kUnitBytes);
}

void Log::detach() {
  unmap(chunk_);
  for (const Chunk& chunk : old_) unmap(chunk);
  chunk_ = {};
  old_.clear();
  next_ = limit_ = nullptr;
  number_ = 0;
  session_.reset();
  for (size_t i = 0; i < kKnown; ++i) known_[i] = {};
}

void Log::attach(std::shared_ptr<Session> session, uint32_t epoch) {
  epoch_ = epoch;
  if (session != session_) {
    detach();
    tid_ = static_cast<uint32_t>(syscall(SYS_gettid));  // another one after a fork
    session_ = std::move(session);
    owner_ = uint64_t{session_->id} << 32 | ++process().serials;
  }
  if (session_->full) limit_ = next_;  // open ranges can still be finished, and losses are counted
}

Log* open_log(uint32_t writer) {
  if (g_epochs[writer].load(std::memory_order_acquire) == 0) return nullptr;
  Process& p = process();
  std::lock_guard lock(p.mutex);
  if (p.writers[writer].parent) continue_after_fork(p, writer);
  if (!p.writers[writer].session) return nullptr;
  Log*& log = t_logs[writer];
  if (!log) {
    log = new Log(writer);
    pthread_setspecific(p.key, t_logs);
  }
  log->attach(p.writers[writer].session, g_epochs[writer].load(std::memory_order_relaxed));
  return log;
}

// Lets the next units be written, as many as are worth fetching at a time.
void Log::go_ahead() {
  Event* base = chunk_.begin - 1;
  Event* from = limit_ ? limit_ : base;
  size_t bytes = std::min(kAheadBytes, static_cast<size_t>(chunk_.end() - from) * kUnitBytes);
  if (limit_) session_->fetch(chunk_.offset + static_cast<uint64_t>(from - base) * kUnitBytes, bytes);
  limit_ = from + bytes / kUnitBytes;
}

// next_ has reached limit_: what was fetched is used up, or the chunk is, or the disk.
bool Log::grow() {
  if (session_->full) {
    session_->count_lost();
    return false;
  }
  Process& p = process();
  std::lock_guard lock(p.mutex);
  if (p.writers[writer_].session != session_) return false;  // stopped meanwhile
  if (session_->is_cut()) {
    session_->count_lost();
    p.new_epoch(writer_);
    return false;
  }
  if (next_ != chunk_.end()) {
    go_ahead();
    return true;
  }
  size_t bytes = chunk_.begin ? std::min((chunk_.units + 1) * kUnitBytes * 4, kLastChunkBytes) : kFirstChunkBytes;
  Mapping made = session_->add_chunk(ChunkKind::kEvents, bytes, kPage, tid_, number_);
  if (!made.base) {
    session_->count_lost();
    p.new_epoch(writer_);
    return false;
  }
  if (chunk_.open) {
    old_.push_back(chunk_);
  } else {
    unmap(chunk_);
  }
  chunk_ = {static_cast<Event*>(made.base) + 1, number_, made.bytes / kUnitBytes - 1, 0, made.offset};
  next_ = chunk_.begin;
  limit_ = nullptr;
  go_ahead();
  return true;
}

void Log::lose() { session_->count_lost(); }

void Log::end_in_old(uint64_t number, int64_t end_ns) {
  for (auto chunk = old_.begin(); chunk != old_.end(); ++chunk) {
    if (!chunk->holds(number)) continue;
    end_in(*chunk, number, end_ns);
    if (chunk->open == 0) {
      unmap(*chunk);
      old_.erase(chunk);
    }
    return;
  }
}

Event* Log::open_range_in_old(uint64_t number) {
  for (const Chunk& chunk : old_) {
    if (chunk.holds(number)) return chunk.begin + (number - chunk.first);
  }
  return nullptr;
}

void finish_slowly(const Place& place, int64_t end_ns) {
  // Not in a fork that has written nothing yet: an end alone is no reason to open a file.
  if (g_forked[place.writer].load(std::memory_order_relaxed)) return;
  Log* log = capture::log(place.writer);
  if (!log) return;
  if (!end_ns) end_ns = log->now();
  if (log->owner_ == place.owner) {
    log->end(place.number, end_ns);
  } else if (log->owner_ >> 32 == place.owner >> 32) {
    Event event{};
    event.kind = static_cast<uint8_t>(Unit::kEnd);
    event.flags = kForeignEnd;
    event.end.time_ns = end_ns;
    event.end.owner_tid = place.tid;
    event.end.owner_unit = place.number;
    log->append(event);
  }
}

void release(const Place& place) {
  if (Log* log = t_logs[place.writer]; log && log->owner_ == place.owner) log->end(place.number, 0);
}

uint32_t Log::intern_slowly(std::string_view text) {
  Process& p = process();
  std::lock_guard lock(p.mutex);
  if (p.writers[writer_].session != session_ || session_->full) return 0;
  uint32_t id = session_->intern(text);
  if (session_->full) {
    p.new_epoch(writer_);
    limit_ = next_;  // rather no event than one without its name
  }
  return id;
}

}  // namespace opspan::capture
