// One capture file, from the side that makes room in it. Everything here happens under the writer's mutex.
#pragma once

#include <atomic>
#include <cstdint>
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

// Zeros are written to a chunk so far ahead, before it is written to through memory: pages that are in the cache by
// then cost a unit 7 ns on ext4, those that the first touch has to fetch 25 ns. (On tmpfs it is 17 ns either way, and
// MADV_POPULATE_WRITE is no better than touching.)
inline constexpr size_t kAheadBytes = 64 << 10;

struct Mapping {
  void* base = nullptr;
  size_t bytes = 0;
  uint64_t offset = 0;  // in the file
};

struct Session {
  // `parent`: the header of the file that this fork goes on from; null in a process that is no fork.
  Session(std::string where, Producer who, const FileHeader* parent);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  bool open(std::string* error);
  void close();

  // A chunk at the end of the file, backed by space of its own, so that writing to it cannot fail. *bytes is what
  // one would like; it may turn out as little as `least`. An empty mapping: the disk is full, and the file is marked
  // so.
  Mapping add_chunk(ChunkKind kind, size_t bytes, size_t least, uint32_t tid, uint64_t first_unit);
  // Fetches what nobody has written to yet. It is only there to be quick: nothing depends on it.
  void fetch(uint64_t offset, size_t bytes);
  // Has somebody cut what was written? Then the file is marked full; what is asked once more is the same as before.
  bool is_cut();
  uint32_t intern(std::string_view text);
  void count_lost();

  const std::string folder;
  const Producer producer;
  const bool forked;
  const int64_t session_ns;  // of the fork's parent; 0: this process starts one
  const uint32_t session_pid;
  std::string path;
  uint32_t id = 0;  // counts the sessions of this process
  std::atomic<bool> full{false};
  FileHeader* header = nullptr;

 private:
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
  std::unordered_map<std::string_view, uint32_t> strings_;
  std::vector<Mapping> string_chunks_;
  char* string_next_ = nullptr;
  char* string_end_ = nullptr;
  uint32_t next_string_ = 1;
};

}  // namespace opspan::capture
