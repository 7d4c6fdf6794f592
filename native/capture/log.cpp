// The slow part of Log: a thread joins a file, gets room in the file, and ends ranges in chunks that it no longer
// writes to.
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
    : tid_(static_cast<uint32_t>(syscall(SYS_gettid))), writer_(writer), texts_(new TextEntry[kTextEntries]) {}

Log::~Log() {
  std::lock_guard lock(process().mutex);
  detach();
}

// Requires the mutex: another thread may be detaching the file.
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
  for (size_t i = 0; i < kTextEntries; ++i) texts_[i] = {};
  names_.clear();
}

void Log::leave_chunk() {
  if (chunk_.open) {
    old_.push_back(chunk_);
  } else {
    unmap(chunk_);
  }
}

// Leaves this segment for the next one. Ranges that are still open get their ends in this segment later, unless the
// segment is dropped first.
void Log::leave_segment(uint32_t oldest) {
  chunk_.halves = number_ - chunk_.first;  // no more units are written to this chunk
  leave_chunk();
  chunk_ = {};
  next_ = limit_ = nullptr;
  forget_texts();
  auto dropped =
      std::stable_partition(old_.begin(), old_.end(), [=](const Chunk& chunk) { return chunk.file >= oldest; });
  std::for_each(dropped, old_.end(), unmap);
  old_.erase(dropped, old_.end());
}

// Begins the next segment, unless another thread has already begun it. This log moves to that segment at its next
// event, because the texts of the current event are in the current segment.
void Log::roll(int64_t ns) {
  Process& p = process();
  DroppedSegments dropped;
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
    tid_ = static_cast<uint32_t>(syscall(SYS_gettid));  // a forked process has another thread id
    owner_ = uint64_t{session->recording} << 32 | ++process().serials;
  }
  session_ = std::move(session);
  file_ = session_->id;
  due_ns_ = session_->due_ns;
  if (session_->full) limit_ = next_;  // new units are counted as lost; open ranges can still be ended
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

// Prepares the next part of the chunk, which has at most kAheadBytes, so that units can be written to it.
void Log::fetch_next_part() {
  auto* base = reinterpret_cast<Half*>(chunk_.header());
  Half* from = limit_ ? limit_ : base;
  size_t bytes = std::min(kAheadBytes, static_cast<size_t>(chunk_.end() - from) * kHalfBytes);
  if (limit_) session_->fetch(chunk_.offset + static_cast<uint64_t>(from - base) * kHalfBytes, bytes);
  limit_ = from + bytes / kHalfBytes;
}

// Counts a unit as lost because the file is full. In a rolling recording, also begins the next file if it is due.
bool Log::lose_unit(Process& p, DroppedSegments& dropped, bool was_open) {
  session_->count_lost();
  if (was_open) p.new_epoch(writer_);
  p.roll_if_due(writer_, now_ns(), dropped);
  return false;
}

// Makes room when next_ has reached limit_: prepares more of the chunk, or adds a chunk. Returns false if no room can
// be made, because the disk is full or the recording has stopped.
bool Log::grow() {
  if (session_->full && !session_->segment) {
    session_->count_lost();
    return false;
  }
  Process& p = process();
  DroppedSegments dropped;
  std::lock_guard lock(p.mutex);
  if (!p.writers[writer_].accepts(*session_)) return false;  // the recording has stopped
  bool was_full = session_->full;
  if (session_->is_cut()) return lose_unit(p, dropped, !was_full);
  if (next_ != chunk_.end()) {
    fetch_next_part();
    return true;
  }
  size_t bytes = chunk_.begin ? std::min((chunk_.halves * kHalfBytes + kUnitBytes) * 4, session_->most_chunk_bytes)
                              : kFirstChunkBytes;
  Mapping mapping = session_->add_chunk(ChunkKind::kHalves, bytes, kPage, tid_, number_);
  if (!mapping.base) return lose_unit(p, dropped, true);
  p.mapped_chunks[mapping.base] = {mapping.bytes, session_->recording};
  leave_chunk();
  auto* begin = reinterpret_cast<Half*>(static_cast<char*>(mapping.base) + sizeof(ChunkHeader));
  chunk_ = {begin, number_,      (mapping.bytes - sizeof(ChunkHeader)) / kHalfBytes, 0, mapping.offset,
            file_, mapping.bytes};
  p.roll_if_due(writer_, now_ns(), dropped);
  next_ = chunk_.begin;
  limit_ = nullptr;
  fetch_next_part();
  return true;
}

void Log::count_lost() { session_->count_lost(); }

bool Log::end_in_old_chunk(const Place& place, int64_t end_ns) {
  for (auto chunk = old_.begin(); chunk != old_.end(); ++chunk) {
    if (!chunk->holds(place.number)) continue;
    const bool is_written = write_end(*chunk, place, end_ns);
    if (chunk->open == 0) {
      std::lock_guard lock(process().mutex);
      unmap(*chunk);
      old_.erase(chunk);
    }
    return is_written;
  }
  return true;  // the segment of the range has been dropped
}

// Appends a kEnd unit that refers to the range.
void Log::append_end(const Place& place, int64_t end_ns) {
  Event event{};
  event.kind = static_cast<uint8_t>(Unit::kEnd);
  event.flags = kForeignEnd;
  event.end.time_ns = end_ns;
  event.end.owner_tid = place.tid;
  event.end.owner_unit = place.number;
  append(event);
}

void end_slowly(const Place& place, int64_t end_ns) {
  // If this is a forked process that has not opened its own file yet, the end is dropped: it is not worth a file.
  if (g_forked[place.writer].load(std::memory_order_relaxed)) return;
  Log* log = capture::log(place.writer);
  if (!log) return;
  if (!end_ns) end_ns = log->now();
  if (log->owner_ == place.owner) {
    log->end(place, end_ns);
  } else if (log->owner_ >> 32 == place.owner >> 32) {
    log->append_end(place, end_ns);
  }
}

void give_up_range(const Place& place) {
  if (Log* log = t_logs[place.writer]; log && log->owner_ == place.owner) log->end(place, 0);
}

uint32_t Log::intern_slowly(std::string_view text) {
  Process& p = process();
  DroppedSegments dropped;
  std::lock_guard lock(p.mutex);
  if (!p.writers[writer_].accepts(*session_) || session_->full) return 0;
  uint32_t id = session_->intern(text);
  p.roll_if_due(writer_, now_ns(), dropped);
  if (session_->full) {
    p.new_epoch(writer_);
    limit_ = next_;  // drops the event, which would be useless without its name
  }
  return id;
}

}  // namespace opspan::capture
