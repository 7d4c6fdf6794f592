#include "capture/ring.h"

#include <errno.h>

#include <algorithm>
#include <bit>
#include <utility>

namespace opspan::capture {
namespace {

uint64_t lost_in(const Session& segment) { return __atomic_load_n(&segment.header->lost, __ATOMIC_RELAXED); }

}  // namespace

void DroppedSegments::remove() {
  for (const auto& segment : segments_) segment->remove();
  segments_.clear();
}

Ring::Ring(const KeepLimits& limits, std::shared_ptr<Session> first) : limits_(limits) {
  if (limits_.ns) first->due_ns = first->begin_ns() + limits_.ns / kSegments;
  segments_.push_back({std::move(first), 0});
}

// Returns a chunk size so small that the first chunks of many threads do not fill a segment.
size_t Ring::chunk_bytes(const KeepLimits& limits) {
  if (!limits.bytes) return kLastChunkBytes;
  return std::clamp(std::bit_floor(static_cast<size_t>(limits.bytes) / kSegments / 16), kPage * 4, kLastChunkBytes);
}

bool Ring::is_due(int64_t now_ns) const {
  const Segment& last = segments_.back();
  if (now_ns < retry_ns_) return false;
  return last->full || (limits_.ns && now_ns - last->begin_ns() >= limits_.ns / kSegments) ||
         (limits_.bytes && last->bytes() >= limits_.bytes / kSegments) ||
         (limits_.steps && steps_ - last.first_step >= std::max(limits_.steps / kSegments, uint64_t{1}));
}

bool Ring::is_enough_without_oldest(int64_t now_ns) const {
  const Segment& second = segments_[1];
  if (limits_.ns && now_ns - second->begin_ns() >= limits_.ns) return true;
  if (limits_.steps && steps_ - second.first_step >= limits_.steps) return true;
  uint64_t bytes = 0;
  for (size_t i = 1; i < segments_.size(); ++i) bytes += segments_[i]->bytes();
  return limits_.bytes && bytes >= limits_.bytes;
}

void Ring::drop_oldest(DroppedSegments& dropped) {
  lost_ += lost_in(*segments_.front().session);
  dropped.add(std::move(segments_.front().session));
  segments_.pop_front();
}

// Frees space on a full disk. Keeping fewer segments than the user asked for is better than stopping the recording.
bool Ring::make_room(DroppedSegments& dropped) {
  if (holds_ || segments_.size() < 2) return false;
  drop_oldest(dropped);
  dropped.remove();
  return true;
}

void Ring::drop(int64_t now_ns, DroppedSegments& dropped) {
  while (!holds_ && segments_.size() > 1 && is_enough_without_oldest(now_ns)) drop_oldest(dropped);
}

const std::shared_ptr<Session>& Ring::roll(uint32_t id, int64_t now_ns, DroppedSegments& dropped) {
  Segment& last = segments_.back();
  if (!is_due(now_ns)) return last.session;
  drop(now_ns, dropped);
  if (last->full) make_room(dropped);
  auto next = std::make_shared<Session>(*last.session, id);
  std::string error;
  bool is_open = next->open(&error);
  while (!is_open && (errno == ENOSPC || errno == EDQUOT) && make_room(dropped)) is_open = next->open(&error);
  if (!is_open) {
    retry_ns_ = now_ns + kRetryNs;
    return last.session;
  }
  if (limits_.ns) next->due_ns = next->begin_ns() + limits_.ns / kSegments;
  last->close();
  segments_.push_back({std::move(next), steps_});
  return segments_.back().session;
}

void Ring::hold(bool on, DroppedSegments& dropped) {
  holds_ += on ? 1 : -1;
  drop(now_ns(), dropped);
}

void Ring::detach_files() {
  for (const Segment& segment : segments_) segment.session->detach_file();
}

uint64_t Ring::lost() const {
  uint64_t lost = lost_;
  for (const Segment& segment : segments_) lost += lost_in(*segment.session);
  return lost;
}

}  // namespace opspan::capture
