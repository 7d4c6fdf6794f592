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
  static Process* it = new Process;
  return *it;
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

// The child writes nothing here: most children exec at once. Its first event opens a file of its own. Not beside a
// rolling recording: each epoch's workers would leave theirs, and nobody would know when they may go.
void after_fork_in_child() {
  Process& p = process();
  for (uint32_t i = 0; i < kWriters; ++i) {
    if (!p.writers[i].session) continue;
    g_recordings[i].store(0, std::memory_order_relaxed);
    if (p.writers[i].ring) {
      p.writers[i].ring->release();
      p.release(*forget(p, i));
      continue;
    }
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
                  const Keep& keep, std::string* error) {
  auto session = std::make_shared<Session>(std::move(folder), producer, parent, ++p.sessions);
  if (keep) {
    session->segment = 1;
    session->most_chunk_bytes = Ring::chunk_bytes(keep);
  }
  if (!session->open(error)) return false;
  if (keep) p.writers[writer].ring = std::make_unique<Ring>(keep, session);
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
  p.release(*parent);
  if (is_open) return;
  g_epochs[writer].store(0, std::memory_order_release);
  say(error + ": this process records nothing, the program goes on");
}

void Process::unmap(void* base, size_t bytes) {
  mapped.erase(base);
  unmap_guarded(base, bytes);
}

void Process::release(Session& session) {
  for (const auto& [base, chunk] : mapped) {
    if (chunk.recording == session.recording) let_go_of_file(base, chunk.bytes);
  }
  session.release();
}

void Process::roll_if_due(uint32_t writer, int64_t now_ns, Dropped& dropped) {
  Writer& it = writers[writer];
  if (!it.ring) return;
  const std::shared_ptr<Session>& newest = it.ring->roll(sessions + 1, now_ns, dropped);
  if (newest == it.session) return;
  ++sessions;
  it.session = newest;
  new_epoch(writer);
}

void step(uint32_t writer) {
  Process& p = process();
  Dropped dropped;
  std::lock_guard lock(p.mutex);
  if (!p.writers[writer].ring) return;
  p.writers[writer].ring->step();
  p.roll_if_due(writer, now_ns(), dropped);
}

void hold(uint32_t writer, bool on) {
  Process& p = process();
  Dropped dropped;
  std::lock_guard lock(p.mutex);
  if (p.writers[writer].ring) p.writers[writer].ring->hold(on, dropped);
}

namespace {

// With the mutex held.
uint64_t stop_held(Process& p, uint32_t writer) {
  std::shared_ptr<Session> parent = std::move(p.writers[writer].parent);
  if (parent) p.release(*parent);
  std::unique_ptr<Ring> ring = std::move(p.writers[writer].ring);
  std::shared_ptr<Session> session = forget(p, writer);
  if (!session) return 0;
  session->close();
  uint64_t lost = ring ? ring->lost() : __atomic_load_n(&session->header->lost, __ATOMIC_RELAXED);
  if (ring) ring->release();
  p.release(*session);
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
  for (uint32_t i = 0; i < kWriters; ++i) stop_held(p, i);
  p.mutex.unlock();
}

}  // namespace

bool start(const char* folder, Producer producer, std::string* path, std::string* error, uint32_t writer,
           const Keep& keep) {
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
  if (!open_session(p, writer, whole.get(), producer, nullptr, keep, error)) return false;
  *path = p.writers[writer].session->path;
  return true;
}

uint64_t stop(uint32_t writer) {
  Process& p = process();
  std::lock_guard lock(p.mutex);
  return stop_held(p, writer);
}

}  // namespace opspan::capture
