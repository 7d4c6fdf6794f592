// A rolling recording: the last of it, in a row of files. Each file, a segment, is a Session; threads move on to the
// newest one at their next event, as they do to the file of another recording.
//
// What joins the segments: a thread counts its units on and on, and texts are numbered on and on, so that the segments
// read as one file that was cut into pieces. A range that is open when its thread moves on is finished where it was
// begun, for as long as that segment is kept.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "capture/session.h"
#include "capture/writer.h"

namespace opspan::capture {

// The oldest segment goes once the others hold what is to be kept. So what is kept is at least that much, and up to two
// segments more.
inline constexpr int kSegments = 16;
inline constexpr int64_t kRetryNs = 100'000'000;  // no segment could be begun: not again before

// Segments that nobody needs any more. Their files are deleted when this goes, which is to be when the mutex is free:
// it can take a file system milliseconds.
class Dropped {
 public:
  Dropped() = default;
  Dropped(const Dropped&) = delete;
  Dropped& operator=(const Dropped&) = delete;
  ~Dropped() { remove(); }
  void add(std::shared_ptr<Session> segment) { segments_.push_back(std::move(segment)); }
  void remove();

 private:
  std::vector<std::shared_ptr<Session>> segments_;
};

// Everything here happens under the writer's mutex.
class Ring {
 public:
  Ring(const Keep& keep, std::shared_ptr<Session> first);

  // Begins another segment, of this id, if that is due, and drops what is not needed any more. The newest segment.
  const std::shared_ptr<Session>& roll(uint32_t id, int64_t now_ns, Dropped& dropped);
  void step() { ++steps_; }
  // Drops nothing while somebody copies the segments.
  void hold(bool on, Dropped& dropped);

  bool is_due(int64_t now_ns) const;
  bool has(const Session& segment) const { return segment.id >= segments_.front()->id; }
  uint32_t oldest() const { return segments_.front()->id; }
  uint64_t lost() const;
  // Of all segments; the recording is over.
  void release();
  static size_t chunk_bytes(const Keep& keep);

 private:
  struct Segment {
    std::shared_ptr<Session> session;
    uint64_t first_step;
    Session* operator->() const { return session.get(); }
  };
  bool is_enough_without_oldest(int64_t now_ns) const;
  void drop_oldest(Dropped& dropped);
  void drop(int64_t now_ns, Dropped& dropped);
  bool make_room(Dropped& dropped);

  const Keep keep_;
  std::deque<Segment> segments_;  // the last one is being written
  uint64_t steps_ = 0;
  uint64_t lost_ = 0;  // units, in segments that were dropped
  uint32_t held_ = 0;
  int64_t retry_ns_ = 0;
};

}  // namespace opspan::capture
