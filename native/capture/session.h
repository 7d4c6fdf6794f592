// One capture file, from the side that makes room in it. Everything here happens under the writer's mutex.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "capture/format.h"

namespace opspan::capture {

// A thread's first chunk is a page, for programs that make many threads; each further one is four times as large.
inline constexpr size_t kFirstChunkBytes = kPage;
inline constexpr size_t kLastChunkBytes = 4 << 20;
inline constexpr size_t kFirstStringChunkBytes = 32 << 10;
inline constexpr size_t kLastStringChunkBytes = 1 << 20;

// Zeros are written to a chunk so far ahead, before it is written to through memory. On ext4 that makes one large page
// of the cache, which the first touch maps whole: a unit costs 12 ns so, 15 ns with 64 KiB at a time, and 69 ns where
// touching is all. (1 MiB saves one more, and stops the program for longer. On tmpfs it is 50 ns either way, and
// MADV_POPULATE_WRITE is no better than touching.)
inline constexpr size_t kAheadBytes = 256 << 10;

struct Mapping {
  void* base = nullptr;
  size_t bytes = 0;
  uint64_t offset = 0;  // in the file
};

inline constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

struct Session {
  // `parent`: the header of the file that this fork goes on from; null in a process that is no fork.
  Session(std::string where, Producer who, const FileHeader* parent, uint32_t number);
  // The segment of a rolling recording that comes after `before`.
  Session(const Session& before, uint32_t number);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  bool open(std::string* error);
  void close();
  // After that: the descriptor, the header and the texts hold the file no more. `lost` was read before.
  void release();

  // A chunk at the end of the file, backed by space of its own, so that writing to it cannot fail. *bytes is what
  // one would like; it may turn out as little as `least`. An empty mapping: the disk is full, and the file is marked
  // so.
  Mapping add_chunk(ChunkKind kind, size_t bytes, size_t least, uint32_t tid, uint64_t first_unit);
  // Fetches what nobody has written to yet. It is only there to be quick: nothing depends on it.
  void fetch(uint64_t offset, size_t bytes);
  // Has somebody cut what was written, or deleted it? Then the file is marked full; what is asked once more is the same
  // as before.
  bool is_cut();
  uint32_t intern(std::string_view text);
  void count_lost();
  // Deletes the file. Threads may have pieces of it mapped for as long as they sleep: its room is free at once, where
  // the file system can do that.
  void remove();
  int64_t begin_ns() const { return header->open_monotonic_ns; }
  uint64_t bytes() const { return size_; }

  const std::string folder;
  const Producer producer;
  const bool forked;
  int64_t session_ns;  // of the fork's parent; 0 until it is open: this process starts one
  uint32_t session_pid;
  const uint32_t id;         // counts the sessions of this process
  const uint32_t recording;  // the id of its first segment, or its own
  uint32_t segment = 0;      // number of the segment of a rolling recording, from 1 on; 0: it is no such
  int64_t due_ns = kNever;   // when the next segment is to begin
  size_t most_chunk_bytes = kLastChunkBytes;
  std::string path;
  std::atomic<bool> full{false};
  FileHeader* header = nullptr;

 private:
  uint32_t next_string();
  char* add_string_chunk(size_t least);
  void mark_full(const char* why);
  bool is_ours(int fd) const;
  int descriptor();

  int fd_ = -1;
  uint64_t device_ = 0;
  uint64_t inode_ = 0;
  uint64_t size_ = 0;  // up to here the file is made of chunks

  // Texts that were written, in the mapped chunks. At most kMaxStrings are remembered: then the table starts over, and
  // a text that comes back is written again under a new id.
  static constexpr size_t kMaxStrings = 1 << 16;
  // What the segments of a recording have in common.
  struct Common {
    uint32_t next_string = 1;
    bool said_full = false;
  };
  const std::shared_ptr<Common> common_;
  std::unordered_map<std::string_view, uint32_t> strings_;
  std::vector<Mapping> string_chunks_;
  char* string_next_ = nullptr;
  char* string_end_ = nullptr;
};

}  // namespace opspan::capture
