// State that the writers of a process share. The mutex guards all of this state except g_forked.
#pragma once

#include <pthread.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "capture/ring.h"
#include "capture/session.h"
#include "capture/writer.h"

namespace opspan::capture {

// A chunk that a thread has mapped.
struct MappedChunk {
  size_t bytes;
  uint32_t recording;
};

struct Writer {
  std::shared_ptr<Session> session;  // null: off, or this is a forked process that has written nothing yet
  std::shared_ptr<Session> parent;   // in a forked process that has written nothing yet: its parent's session
  std::unique_ptr<Ring> ring;        // for a rolling recording; `session` is its newest segment

  // Returns whether a thread that has joined this session may still write to it.
  bool accepts(const Session& other) const {
    return session && (session.get() == &other || (ring && other.recording == session->recording && ring->has(other)));
  }
};

// The state of the process is never destroyed, because threads may still run while the process ends.
struct Process {
  std::mutex mutex;
  Writer writers[kWriters];
  bool is_prepared = false;
  pthread_key_t key = 0;
  uint32_t sessions = 0;
  uint32_t epochs = 0;
  uint32_t serials = 0;
  std::unordered_map<void*, MappedChunk> mapped_chunks;  // by address

  void new_epoch(uint32_t writer) { g_epochs[writer].store(++epochs ? epochs : ++epochs, std::memory_order_release); }
  void unmap(void* base, size_t bytes);
  // Detaches this process from the files of a recording. Chunks of threads that write nothing now are replaced with
  // empty memory.
  void detach(Session& session);
  void roll_if_due(uint32_t writer, int64_t now_ns, DroppedSegments& dropped);
};

Process& process();

inline constinit std::atomic<bool> g_forked[kWriters] = {};  // true in a forked process that has written nothing yet

// Opens the file of a forked process, at its first event. Requires the mutex.
void continue_after_fork(Process& p, uint32_t writer);

}  // namespace opspan::capture
