// One capture file: its header, its chunks and its texts. The process' mutex guards all of it.
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

// The number of zeros that are written ahead of the units, which are written through memory. On ext4 the zeros make one
// large page in the page cache, which the first touch maps whole: a unit costs 12 ns then, 15 ns with 64 KiB at a time,
// and 69 ns if pages are only touched. (1 MiB saves one more, and stops the program for longer. On tmpfs it is 50 ns
// either way, and MADV_POPULATE_WRITE is no better than touching.) Stores that bypass the cache take 62 ns instead of
// 39, as a unit gets its end later; units that a thread collects first cost 42 ns, and `kill -9` would lose them.
inline constexpr size_t kAheadBytes = 256 << 10;

struct Mapping {
  void* base = nullptr;
  size_t bytes = 0;
  uint64_t offset = 0;  // in the file
};

inline constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

struct Session {
  // `parent` is the header of the file that this fork continues; null if the process is not a fork.
  Session(std::string folder_path, Producer producer_kind, const FileHeader* parent, uint32_t number);
  // Makes the segment that follows `before` in a rolling recording.
  Session(const Session& before, uint32_t number);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  bool open(std::string* error);
  void close();
  // Closes the descriptor and detaches header and texts from the file, after close(). Read `lost` before.
  void detach_file();

  // Adds a chunk to the end of the file and reserves its space, so writing to it cannot fail. It has at most `bytes`,
  // and at least `least`. Returns an empty mapping, and marks the file as full, if there is no space.
  Mapping add_chunk(ChunkKind kind, size_t bytes, size_t least, uint32_t tid, uint64_t first_unit);
  // Fetches pages that nobody has written to yet. This makes writing faster; nothing depends on it.
  void fetch(uint64_t offset, size_t bytes);
  // Returns whether somebody has cut or deleted the file. It is marked as full then, and the answer stays the same.
  bool is_cut();
  uint32_t intern(std::string_view text);
  void count_lost();
  // Deletes the file, and frees its space at once where the file system can do that: threads may have parts of it
  // mapped for as long as they sleep.
  void remove();
  int64_t begin_ns() const { return header->open_monotonic_ns; }
  uint64_t bytes() const { return size_; }

  const std::string folder;
  const Producer producer;
  const bool forked;
  int64_t session_ns;  // of the process that started the recording; 0 until open() if that is this process
  uint32_t session_pid;
  const uint32_t id;         // counts the sessions of this process
  const uint32_t recording;  // the id of its first segment, or its own
  uint32_t segment = 0;      // number in a rolling recording, from 1 on; 0: the file is not a segment
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
  uint64_t size_ = 0;  // bytes of the header and all chunks

  // The ids of texts in the mapped chunks. At most kMaxStrings are remembered: then the table starts over, and a text
  // that comes again is written again under a new id.
  static constexpr size_t kMaxStrings = 1 << 16;
  // State that the segments of a recording share.
  struct SharedState {
    uint32_t next_string = 1;
    bool has_said_full = false;
  };
  const std::shared_ptr<SharedState> shared_;
  std::unordered_map<std::string_view, uint32_t> strings_;
  std::vector<Mapping> string_chunks_;
  char* string_next_ = nullptr;
  char* string_end_ = nullptr;
};

}  // namespace opspan::capture
