#include "capture/writer.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include <mutex>
#include <utility>

#include "capture/guard.h"
#include "capture/process.h"
#include "capture/say.h"
#include "capture/thread_key.h"

namespace opspan::capture {

Process& process() {
  static Process* instance = new Process;
  return *instance;
}

namespace {

void before_fork() { process().mutex.lock(); }
void after_fork_in_parent() { process().mutex.unlock(); }

std::shared_ptr<Session> forget(Process& p, uint32_t writer) {
  g_epochs[writer].store(0, std::memory_order_release);
  g_recordings[writer].store(0, std::memory_order_release);
  g_forked[writer].store(false, std::memory_order_relaxed);
  p.writers[writer].parent.reset();
  p.writers[writer].ring.reset();
  return std::move(p.writers[writer].session);
}

// The child opens no file here, because most children exec at once. Its first event opens a file of its own. Children
// of a rolling recording record nothing: each epoch of a training may start new worker processes, and nobody would know
// when to delete their files.
void after_fork_in_child() {
  Process& p = process();
  for (uint32_t i = 0; i < kWriters; ++i) {
    if (!p.writers[i].session) continue;
    g_recordings[i].store(0, std::memory_order_relaxed);
    if (p.writers[i].ring) {
      p.writers[i].ring->detach_files();
      p.detach(*forget(p, i));
      continue;
    }
    p.writers[i].parent = std::move(p.writers[i].session);
    g_forked[i].store(true, std::memory_order_relaxed);
    p.new_epoch(i);
  }
  p.mutex.unlock();
}

}  // namespace

// Deletes the logs of a thread that ends.
void forget_logs(void*) {
  for (Log*& log : t_logs) delete std::exchange(log, nullptr);
}

namespace {

void prepare_process(Process& p) {
  if (p.is_prepared) return;
  p.is_prepared = true;
  // Uses a pthread key, and not a thread_local with a destructor, because a key's destructor runs after those of
  // thread_locals. If another event comes after that, the key's destructor runs once more.
  p.key = make_key(forget_logs);
  pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

// Opens the first file of a recording. Requires the mutex.
bool open_session(Process& p, uint32_t writer, std::string folder, Producer producer, const FileHeader* parent,
                  const KeepLimits& limits, std::string* error) {
  auto session = std::make_shared<Session>(std::move(folder), producer, parent, ++p.sessions);
  if (limits) {
    session->segment = 1;
    session->most_chunk_bytes = Ring::chunk_bytes(limits);
  }
  if (!session->open(error)) return false;
  if (limits) p.writers[writer].ring = std::make_unique<Ring>(limits, session);
  g_recordings[writer].store(session->recording, std::memory_order_release);
  p.writers[writer].session = std::move(session);
  p.new_epoch(writer);
  return true;
}

}  // namespace

void continue_after_fork(Process& p, uint32_t writer) {
  std::shared_ptr<Session> parent = std::move(p.writers[writer].parent);
  g_forked[writer].store(false, std::memory_order_relaxed);
  std::string error;
  bool is_open = open_session(p, writer, parent->folder, parent->producer, parent->header, {}, &error);
  p.detach(*parent);
  if (is_open) return;
  g_epochs[writer].store(0, std::memory_order_release);
  say(error + ": this process records nothing, the program goes on");
}

void Process::unmap(void* base, size_t bytes) {
  mapped_chunks.erase(base);
  unmap_guarded(base, bytes);
}

void Process::detach(Session& session) {
  for (const auto& [base, chunk] : mapped_chunks) {
    if (chunk.recording == session.recording) detach_from_file(base, chunk.bytes);
  }
  session.detach_file();
}

void Process::roll_if_due(uint32_t writer, int64_t now_ns, DroppedSegments& dropped) {
  Writer& state = writers[writer];
  if (!state.ring) return;
  const std::shared_ptr<Session>& newest = state.ring->roll(sessions + 1, now_ns, dropped);
  if (newest == state.session) return;
  ++sessions;
  state.session = newest;
  new_epoch(writer);
}

void step(uint32_t writer) {
  Process& p = process();
  DroppedSegments dropped;
  std::lock_guard lock(p.mutex);
  if (!p.writers[writer].ring) return;
  p.writers[writer].ring->step();
  p.roll_if_due(writer, now_ns(), dropped);
}

void hold(uint32_t writer, bool on) {
  Process& p = process();
  DroppedSegments dropped;
  std::lock_guard lock(p.mutex);
  if (p.writers[writer].ring) p.writers[writer].ring->hold(on, dropped);
}

namespace {

// Stops a recording and returns how many units were lost. Requires the mutex.
uint64_t stop_locked(Process& p, uint32_t writer) {
  std::shared_ptr<Session> parent = std::move(p.writers[writer].parent);
  if (parent) p.detach(*parent);
  std::unique_ptr<Ring> ring = std::move(p.writers[writer].ring);
  std::shared_ptr<Session> session = forget(p, writer);
  if (!session) return 0;
  session->close();
  uint64_t lost = ring ? ring->lost() : __atomic_load_n(&session->header->lost, __ATOMIC_RELAXED);
  if (ring) ring->detach_files();
  p.detach(*session);
  return lost;
}

// Stops all recordings when the process exits. A thread that hangs while it holds the mutex (exit from a signal
// handler) must not block the exit, so this waits for the mutex for a second at most. Without the mutex, the files stay
// as after a kill. They still have all that was recorded.
__attribute__((destructor)) void close_at_exit() {
  Process& p = process();
  for (int tries = 0; !p.mutex.try_lock(); ++tries) {
    if (tries == 1000) return;
    usleep(1000);
  }
  for (uint32_t i = 0; i < kWriters; ++i) stop_locked(p, i);
  p.mutex.unlock();
}

}  // namespace

bool start(const char* folder, Producer producer, std::string* path, std::string* error, uint32_t writer,
           const KeepLimits& limits) {
  check_counter();
  Process& p = process();
  std::lock_guard lock(p.mutex);
  prepare_process(p);
  if (p.writers[writer].session || p.writers[writer].parent) {
    *error = "a capture is already on";
    return false;
  }
  // The path becomes absolute, because forked processes may change their directory before they open a file.
  std::unique_ptr<char, decltype(&free)> absolute(realpath(folder, nullptr), &free);
  if (!absolute) {
    *error = "cannot write to the folder " + std::string(folder) + ": " + strerror(errno);
    return false;
  }
  if (!open_session(p, writer, absolute.get(), producer, nullptr, limits, error)) return false;
  *path = p.writers[writer].session->path;
  return true;
}

uint64_t stop(uint32_t writer) {
  Process& p = process();
  std::lock_guard lock(p.mutex);
  return stop_locked(p, writer);
}

}  // namespace opspan::capture
