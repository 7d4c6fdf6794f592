// A rolling recording keeps only its latest part, in a sequence of files. Each file is called a segment and is a
// Session. A thread moves to the newest segment at its next event, just as it moves to the file of a new recording.
//
// The numbers of a thread's units and of texts continue from one segment to the next, so a reader can join the segments
// into one file. A range that is open when its thread moves on is ended in the segment in which it began, for as long
// as that segment is kept.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "capture/session.h"
#include "capture/writer.h"

namespace opspan::capture {

// The part of a recording that is kept is divided into this many segments. The oldest segment is dropped once the later
// segments hold all of that part, so there may be up to two more segments.
inline constexpr int kSegments = 16;
inline constexpr int64_t kRetryNs = 100'000'000;  // ns until the next attempt, if a segment cannot be opened

// Segments that are no longer needed. The destructor deletes their files and must run without the mutex, because
// deleting can take a file system milliseconds.
class DroppedSegments {
 public:
  DroppedSegments() = default;
  DroppedSegments(const DroppedSegments&) = delete;
  DroppedSegments& operator=(const DroppedSegments&) = delete;
  ~DroppedSegments() { remove(); }
  void add(std::shared_ptr<Session> segment) { segments_.push_back(std::move(segment)); }
  void remove();

 private:
  std::vector<std::shared_ptr<Session>> segments_;
};

// The segments of a rolling recording. The mutex of the process guards all its members.
class Ring {
 public:
  Ring(const KeepLimits& limits, std::shared_ptr<Session> first);

  // Begins the next segment, with this id, if it is due. Drops segments that are no longer needed. Returns the newest
  // segment.
  const std::shared_ptr<Session>& roll(uint32_t id, int64_t now_ns, DroppedSegments& dropped);
  void step() { ++steps_; }
  // Starts or stops holding the segments. No segment is dropped while they are held, so that somebody can copy them.
  void hold(bool on, DroppedSegments& dropped);

  bool is_due(int64_t now_ns) const;
  bool has(const Session& segment) const { return segment.id >= segments_.front()->id; }
  uint32_t oldest() const { return segments_.front()->id; }
  uint64_t lost() const;
  // Detaches the process from all segments once the recording has stopped.
  void detach_files();
  static size_t chunk_bytes(const KeepLimits& limits);

 private:
  struct Segment {
    std::shared_ptr<Session> session;
    uint64_t first_step;
    Session* operator->() const { return session.get(); }
  };
  bool is_enough_without_oldest(int64_t now_ns) const;
  void drop_oldest(DroppedSegments& dropped);
  void drop(int64_t now_ns, DroppedSegments& dropped);
  bool make_room(DroppedSegments& dropped);

  const KeepLimits limits_;
  std::deque<Segment> segments_;  // the last segment is the one that is being written
  uint64_t steps_ = 0;
  uint64_t lost_ = 0;  // number of lost units in the segments that were dropped
  uint32_t holds_ = 0;
  int64_t retry_ns_ = 0;
};

}  // namespace opspan::capture
