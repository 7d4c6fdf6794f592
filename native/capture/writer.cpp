#include "capture/writer.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>

#include "capture/guard.h"
#include "capture/say.h"
#include "capture/session.h"

namespace opspan::capture {
namespace {

// Never destroyed: threads may run while the process ends.
struct Process {
  std::mutex mutex;
  std::shared_ptr<Session> session;  // null: off, or this is a fork that has written nothing yet
  std::shared_ptr<Session> parent;   // in such a fork: the session of the process it came from
  bool prepared = false;
  pthread_key_t key = 0;
  uint32_t sessions = 0;
  uint32_t epochs = 0;
  uint32_t serials = 0;

  void new_epoch() { g_epoch.store(++epochs ? epochs : ++epochs, std::memory_order_release); }
};

std::atomic<bool> g_forked{false};  // a fork that has written nothing yet

Process& process() {
  static Process* it = new Process;
  return *it;
}

void before_fork() { process().mutex.lock(); }
void after_fork_in_parent() { process().mutex.unlock(); }

// The child writes nothing here: most children exec at once. Its first event opens a file of its own.
void after_fork_in_child() {
  Process& p = process();
  if (p.session) {
    p.parent = std::move(p.session);
    g_forked.store(true, std::memory_order_relaxed);
    p.new_epoch();
  }
  p.mutex.unlock();
}

}  // namespace

void forget_log(void* log) {
  t_log = nullptr;
  delete static_cast<Log*>(log);
}

namespace {

void prepare_process(Process& p) {
  if (p.prepared) return;
  p.prepared = true;
  // A key and not a thread_local destructor: keys are emptied last, and again when an event came after that.
  p.key = make_key(forget_log);
  pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

// With the mutex held.
bool open_session(Process& p, std::string folder, Producer producer, const FileHeader* parent, std::string* error) {
  auto session = std::make_shared<Session>(std::move(folder), producer, parent);
  session->id = ++p.sessions;
  if (!session->open(error)) return false;
  p.session = std::move(session);
  p.new_epoch();
  return true;
}

// With the mutex held: the first event after a fork.
void continue_after_fork(Process& p) {
  std::shared_ptr<Session> parent = std::move(p.parent);
  g_forked.store(false, std::memory_order_relaxed);
  std::string error;
  if (open_session(p, parent->folder, parent->producer, parent->header, &error)) return;
  g_epoch.store(0, std::memory_order_release);
  say(error + ": this process records nothing, the program goes on");
}

// With the mutex held.
uint64_t stop_held(Process& p) {
  g_epoch.store(0, std::memory_order_release);
  g_forked.store(false, std::memory_order_relaxed);
  p.parent.reset();
  if (!p.session) return 0;
  p.session->close();
  uint64_t lost = __atomic_load_n(&p.session->header->lost, __ATOMIC_RELAXED);
  p.session.reset();
  return lost;
}

// A thread that stands still with the mutex (exit from a signal handler) must not keep the process from ending: then
// the file is left as after a kill, with all that was recorded.
__attribute__((destructor)) void close_at_exit() {
  Process& p = process();
  for (int tries = 0; !p.mutex.try_lock(); ++tries) {
    if (tries == 1000) return;
    usleep(1000);
  }
  stop_held(p);
  p.mutex.unlock();
}

}  // namespace

bool start(const char* folder, Producer producer, std::string* path, std::string* error) {
  Process& p = process();
  std::lock_guard lock(p.mutex);
  prepare_process(p);
  if (p.session || p.parent) {
    *error = "a capture is already on";
    return false;
  }
  // Absolute, for the sake of forks that change their directory first.
  std::unique_ptr<char, decltype(&free)> whole(realpath(folder, nullptr), &free);
  if (!whole) {
    *error = "cannot write to the folder " + std::string(folder) + ": " + strerror(errno);
    return false;
  }
  if (!open_session(p, whole.get(), producer, nullptr, error)) return false;
  *path = p.session->path;
  return true;
}

uint64_t stop() {
  Process& p = process();
  std::lock_guard lock(p.mutex);
  return stop_held(p);
}

Log::Log() : tid_(static_cast<uint32_t>(syscall(SYS_gettid))), known_(new Known[kKnown]) {}

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

Log* open_log() {
  if (g_epoch.load(std::memory_order_acquire) == 0) return nullptr;
  Process& p = process();
  std::lock_guard lock(p.mutex);
  if (p.parent) continue_after_fork(p);
  if (!p.session) return nullptr;
  if (!t_log) {
    t_log = new Log;
    pthread_setspecific(p.key, t_log);
  }
  t_log->attach(p.session, g_epoch.load(std::memory_order_relaxed));
  return t_log;
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
  if (p.session != session_) return false;  // stopped meanwhile
  if (session_->is_cut()) {
    session_->count_lost();
    p.new_epoch();
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
    p.new_epoch();
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
  if (g_forked.load(std::memory_order_relaxed)) return;
  Log* log = capture::log();
  if (!log) return;
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
  if (t_log && t_log->owner_ == place.owner) t_log->end(place.number, 0);
}

uint32_t Log::intern_slowly(std::string_view text) {
  Process& p = process();
  std::lock_guard lock(p.mutex);
  if (p.session != session_ || session_->full) return 0;
  uint32_t id = session_->intern(text);
  if (session_->full) {
    p.new_epoch();
    limit_ = next_;  // rather no event than one without its name
  }
  return id;
}

}  // namespace opspan::capture
