// One capture file: its header, its chunks and its texts. The mutex of the process guards all its members.
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

// A thread's first chunk is only one page, because some programs make many threads. Each further chunk is four times as
// large as the one before.
inline constexpr size_t kFirstChunkBytes = kPage;
inline constexpr size_t kLastChunkBytes = 4 << 20;
inline constexpr size_t kFirstStringChunkBytes = 32 << 10;
inline constexpr size_t kLastStringChunkBytes = 1 << 20;

// The number of zeros that are written to the file ahead of the units. (The units themselves are written through mapped
// memory.) On ext4 the zeros make one large page in the page cache, and the first access maps all of that page. A unit
// then costs 12 ns. It costs 15 ns with 64 KiB of zeros, and 69 ns if pages are only touched. (1 MiB saves one more ns,
// but stops the program for longer. On tmpfs a unit costs 50 ns with or without zeros, and MADV_POPULATE_WRITE is no
// faster than touching.) Stores that bypass the cache cost 62 ns instead of 39, because a unit gets its end later. If a
// thread collected units before it wrote them, a unit would cost 42 ns, and `kill -9` would lose the collected units.
inline constexpr size_t kAheadBytes = 256 << 10;

struct Mapping {
  void* base = nullptr;
  size_t bytes = 0;
  uint64_t offset = 0;  // offset in the file
};

inline constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

struct Session {
  // `parent` is the header of the parent's file if this is a forked process that continues it; otherwise null.
  Session(std::string folder_path, Producer producer_kind, const FileHeader* parent, uint32_t number);
  // Makes the segment that follows `before` in a rolling recording.
  Session(const Session& before, uint32_t number);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  bool open(std::string* error);
  void close();
  // Closes the descriptor and detaches the header and the texts from the file. Call close() and read `lost` first.
  void detach_file();

  // Adds a chunk to the end of the file and reserves its space, so writing to it cannot fail. The chunk has between
  // `least` and `bytes` bytes. If there is no space, marks the file as full and returns an empty mapping.
  Mapping add_chunk(ChunkKind kind, size_t bytes, size_t least, uint32_t tid, uint64_t first_unit);
  // Writes zeros to pages that nobody has written to yet, see kAheadBytes. An error does no harm.
  void fetch(uint64_t offset, size_t bytes);
  // Returns whether somebody has cut or deleted the file. If so, marks the file as full, and returns true in every
  // later call.
  bool is_cut();
  uint32_t intern(std::string_view text);
  void count_lost();
  // Deletes the file. Frees its space at once if the file system can do that, because threads that sleep may keep parts
  // of the file mapped for a long time.
  void remove();
  int64_t begin_ns() const { return header->open_monotonic_ns; }
  uint64_t bytes() const { return size_; }

  const std::string folder;
  const Producer producer;
  const bool forked;
  int64_t session_ns;  // FileHeader::session_ns; 0 until open() in the process that started the recording
  uint32_t session_pid;
  const uint32_t id;         // number of the session, counted in this process
  const uint32_t recording;  // the id of the first segment of a rolling recording, else the session's own id
  uint32_t segment = 0;      // number in a rolling recording, counted from 1; 0: not a segment
  int64_t due_ns = kNever;   // time (ns) at which the next segment begins
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

  // The ids of texts in the mapped chunks. At most kMaxStrings texts are remembered. Then the table is cleared, and a
  // text that was known is written again with a new id.
  static constexpr size_t kMaxStrings = 1 << 16;
  // State that the segments of a recording share.
  struct SharedState {
    uint32_t next_string = 1;
    bool has_said_full = false;
    std::string processor;  // entries for the header, see processor.h
  };
  const std::shared_ptr<SharedState> shared_;
  std::unordered_map<std::string_view, uint32_t> strings_;
  std::vector<Mapping> string_chunks_;
  char* string_next_ = nullptr;
  char* string_end_ = nullptr;
};

}  // namespace opspan::capture
