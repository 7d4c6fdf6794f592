// A thread's own end of the file: how it comes to a file, makes room in it, and ends what it began.
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <mutex>
#include <utility>

#include "capture/guard.h"
#include "capture/process.h"
#include "capture/writer.h"

namespace opspan::capture {

Log::Log(uint32_t writer)
    : tid_(static_cast<uint32_t>(syscall(SYS_gettid))), writer_(writer), known_(new Known[kKnown]) {}

Log::~Log() {
  std::lock_guard lock(process().mutex);
  detach();
}

// With the mutex held: another thread may be taking the file away from there.
void Log::unmap(const Chunk& chunk) {
  if (chunk.begin) process().unmap(chunk.header(), chunk.bytes);
}

void Log::detach() {
  unmap(chunk_);
  for (const Chunk& chunk : old_) unmap(chunk);
  chunk_ = {};
  old_.clear();
  next_ = limit_ = nullptr;
  number_ = 0;
  session_.reset();
  forget_texts();
}

void Log::forget_texts() {
  for (size_t i = 0; i < kKnown; ++i) known_[i] = {};
  names_.clear();
}

void Log::leave_chunk() {
  if (chunk_.open) {
    old_.push_back(chunk_);
  } else {
    unmap(chunk_);
  }
}

// For the next one. What is open here is finished here later, unless the segment has been dropped by then.
void Log::leave_segment(uint32_t oldest) {
  chunk_.halves = number_ - chunk_.first;  // what comes now is elsewhere
  leave_chunk();
  chunk_ = {};
  next_ = limit_ = nullptr;
  forget_texts();
  auto gone = std::stable_partition(old_.begin(), old_.end(), [=](const Chunk& chunk) { return chunk.file >= oldest; });
  std::for_each(gone, old_.end(), unmap);
  old_.erase(gone, old_.end());
}

// Another thread may have been first. This one goes on where it is: what it is about to write has its texts there.
void Log::roll(int64_t ns) {
  Process& p = process();
  Dropped dropped;
  std::lock_guard lock(p.mutex);
  if (p.writers[writer_].session == session_) p.roll_if_due(writer_, ns, dropped);
  due_ns_ = p.writers[writer_].session == session_ ? ns + kRetryNs : kNever;
}

void Log::attach(std::shared_ptr<Session> session, uint32_t epoch, uint32_t oldest) {
  epoch_ = epoch;
  if (session_ && session != session_ && session->recording == session_->recording) {
    leave_segment(oldest);
  } else if (session != session_) {
    detach();
    tid_ = static_cast<uint32_t>(syscall(SYS_gettid));  // another one after a fork
    owner_ = uint64_t{session->recording} << 32 | ++process().serials;
  }
  session_ = std::move(session);
  file_ = session_->id;
  due_ns_ = session_->due_ns;
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
  const Writer& to = p.writers[writer];
  log->attach(to.session, g_epochs[writer].load(std::memory_order_relaxed), to.ring ? to.ring->oldest() : 0);
  return log;
}

// Lets the next units be written, as many as are worth fetching at a time.
void Log::go_ahead() {
  auto* base = reinterpret_cast<Half*>(chunk_.header());
  Half* from = limit_ ? limit_ : base;
  size_t bytes = std::min(kAheadBytes, static_cast<size_t>(chunk_.end() - from) * kHalfBytes);
  if (limit_) session_->fetch(chunk_.offset + static_cast<uint64_t>(from - base) * kHalfBytes, bytes);
  limit_ = from + bytes / kHalfBytes;
}

// The file is full: the unit is lost. A rolling recording goes on in another file, as soon as it gets one.
bool Log::give_up(Process& p, Dropped& dropped, bool is_news) {
  session_->count_lost();
  if (is_news) p.new_epoch(writer_);
  p.roll_if_due(writer_, now_ns(), dropped);
  return false;
}

// next_ has reached limit_: what was fetched is used up, or the chunk is, or the disk.
bool Log::grow() {
  if (session_->full && !session_->segment) {
    session_->count_lost();
    return false;
  }
  Process& p = process();
  Dropped dropped;
  std::lock_guard lock(p.mutex);
  if (!p.writers[writer_].takes(*session_)) return false;  // stopped meanwhile
  bool was_full = session_->full;
  if (session_->is_cut()) return give_up(p, dropped, !was_full);
  if (next_ != chunk_.end()) {
    go_ahead();
    return true;
  }
  size_t bytes = chunk_.begin ? std::min((chunk_.halves * kHalfBytes + kUnitBytes) * 4, session_->most_chunk_bytes)
                              : kFirstChunkBytes;
  Mapping made = session_->add_chunk(ChunkKind::kHalves, bytes, kPage, tid_, number_);
  if (!made.base) return give_up(p, dropped, true);
  p.mapped[made.base] = {made.bytes, session_->recording};
  leave_chunk();
  auto* begin = reinterpret_cast<Half*>(static_cast<char*>(made.base) + sizeof(ChunkHeader));
  chunk_ = {begin, number_, (made.bytes - sizeof(ChunkHeader)) / kHalfBytes, 0, made.offset, file_, made.bytes};
  p.roll_if_due(writer_, now_ns(), dropped);
  next_ = chunk_.begin;
  limit_ = nullptr;
  go_ahead();
  return true;
}

void Log::lose() { session_->count_lost(); }

bool Log::end_in_old(const Place& place, int64_t end_ns) {
  for (auto chunk = old_.begin(); chunk != old_.end(); ++chunk) {
    if (!chunk->holds(place.number)) continue;
    const bool is_told = end_in(*chunk, place, end_ns);
    if (chunk->open == 0) {
      std::lock_guard lock(process().mutex);
      unmap(*chunk);
      old_.erase(chunk);
    }
    return is_told;
  }
  return true;  // it is in a segment that is gone
}

// By a unit that names the range's.
void Log::end_apart(const Place& place, int64_t end_ns) {
  Event event{};
  event.kind = static_cast<uint8_t>(Unit::kEnd);
  event.flags = kForeignEnd;
  event.end.time_ns = end_ns;
  event.end.owner_tid = place.tid;
  event.end.owner_unit = place.number;
  append(event);
}

void finish_slowly(const Place& place, int64_t end_ns) {
  // Not in a fork that has written nothing yet: an end alone is no reason to open a file.
  if (g_forked[place.writer].load(std::memory_order_relaxed)) return;
  Log* log = capture::log(place.writer);
  if (!log) return;
  if (!end_ns) end_ns = log->now();
  if (log->owner_ == place.owner) {
    log->end(place, end_ns);
  } else if (log->owner_ >> 32 == place.owner >> 32) {
    log->end_apart(place, end_ns);
  }
}

void release(const Place& place) {
  if (Log* log = t_logs[place.writer]; log && log->owner_ == place.owner) log->end(place, 0);
}

uint32_t Log::intern_slowly(std::string_view text) {
  Process& p = process();
  Dropped dropped;
  std::lock_guard lock(p.mutex);
  if (!p.writers[writer_].takes(*session_) || session_->full) return 0;
  uint32_t id = session_->intern(text);
  p.roll_if_due(writer_, now_ns(), dropped);
  if (session_->full) {
    p.new_epoch(writer_);
    limit_ = next_;  // rather no event than one without its name
  }
  return id;
}

}  // namespace opspan::capture
