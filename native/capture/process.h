// What the writers of a process share. Everything here but the flag happens under the mutex.
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
struct Mapped {
  size_t bytes;
  uint32_t recording;
};

struct Writer {
  std::shared_ptr<Session> session;  // null: off, or this is a fork that has written nothing yet
  std::shared_ptr<Session> parent;   // in such a fork: the session of the process it came from
  std::unique_ptr<Ring> ring;        // of a rolling recording, whose newest segment is the session

  // May a thread that came to this session still write there?
  bool takes(const Session& one) const {
    return session && (session.get() == &one || (ring && one.recording == session->recording && ring->has(one)));
  }
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
  std::unordered_map<void*, Mapped> mapped;  // by where they are

  void new_epoch(uint32_t writer) { g_epochs[writer].store(++epochs ? epochs : ++epochs, std::memory_order_release); }
  void unmap(void* base, size_t bytes);
  // Nothing of this process holds the files of a recording any more: threads that sleep keep empty memory.
  void release(Session& session);
  void roll_if_due(uint32_t writer, int64_t now_ns, Dropped& dropped);
};

Process& process();

inline constinit std::atomic<bool> g_forked[kWriters] = {};  // a fork that has written nothing yet

// With the mutex held: the first event after a fork.
void continue_after_fork(Process& p, uint32_t writer);

}  // namespace opspan::capture
