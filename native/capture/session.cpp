#include "capture/session.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <utility>

#include "capture/guard.h"
#include "capture/processor.h"
#include "capture/say.h"
#include "capture/startup.h"

namespace opspan::capture {
namespace {

int64_t clock_ns(clockid_t clock) {
  timespec t;
  clock_gettime(clock, &t);
  return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

// Reads both clocks at one moment. Writes the time of CLOCK_MONOTONIC to `*monotonic_ns` and returns the UTC time.
int64_t clock_pair(int64_t* monotonic_ns) {
  int64_t before = clock_ns(CLOCK_MONOTONIC);
  int64_t utc = clock_ns(CLOCK_REALTIME);
  *monotonic_ns = before + (clock_ns(CLOCK_MONOTONIC) - before) / 2;
  return utc;
}

// Works like posix_fallocate, but returns an error at a file size limit. posix_fallocate would raise SIGXFSZ there,
// which ends the program.
int reserve(int fd, uint64_t offset, size_t bytes) {
  rlimit limit;
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && offset + bytes > limit.rlim_cur) {
    return EFBIG;
  }
  int error;
  do {
    error = posix_fallocate(fd, static_cast<off_t>(offset), static_cast<off_t>(bytes));
  } while (error == EINTR);
  return error;
}

template <typename T>
void store(T* target, T value) {
  __atomic_store_n(target, value, __ATOMIC_RELEASE);
}

}  // namespace

Session::Session(std::string folder_path, Producer producer_kind, const FileHeader* parent, uint32_t number)
    : folder(std::move(folder_path)),
      producer(producer_kind),
      forked(parent),
      session_ns(parent ? parent->session_ns : 0),
      session_pid(parent ? parent->session_pid : 0),
      id(number),
      recording(number),
      shared_(std::make_shared<SharedState>()) {}

Session::Session(const Session& before, uint32_t number)
    : folder(before.folder),
      producer(before.producer),
      forked(before.forked),
      session_ns(before.session_ns),
      session_pid(before.session_pid),
      id(number),
      recording(before.recording),
      segment(before.segment + 1),
      most_chunk_bytes(before.most_chunk_bytes),
      shared_(before.shared_) {}

Session::~Session() {
  if (header) unmap_guarded(header, kPage);
  for (const Mapping& chunk : string_chunks_) unmap_guarded(chunk.base, chunk.bytes);
  if (is_ours(fd_)) ::close(fd_);
}

bool Session::is_ours(int fd) const {
  struct stat status;
  return fd >= 0 && fstat(fd, &status) == 0 && status.st_dev == device_ && status.st_ino == inode_;
}

// Returns the file's descriptor, and opens the file again if necessary. A program that becomes a daemon closes
// descriptors that it does not know, and another file may have the descriptor's number by now.
int Session::descriptor() {
  if (is_ours(fd_)) return fd_;
  fd_ = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd_ >= 0 && !is_ours(fd_)) {
    ::close(fd_);
    fd_ = -1;
    errno = ESTALE;
  }
  return fd_;
}

bool Session::open(std::string* error) {
  auto fail = [&](const char* what, int code) {
    bool is_limit = code == EMFILE || code == ENFILE;
    *error = "cannot " + std::string(what) + " " + path + ": " + strerror(code) +
             (is_limit ? ": raise the limit (ulimit -n)" : "");
    if (fd_ >= 0) unlink(path.c_str());
    if (is_ours(fd_)) ::close(std::exchange(fd_, -1));
    errno = code;
    return false;
  };
  int64_t monotonic_ns = 0;
  int64_t utc_ns = 0;
  do {
    utc_ns = clock_pair(&monotonic_ns);
    int64_t named_ns = segment > 1 ? session_ns : monotonic_ns;
    char number[16] = "";
    if (segment) std::snprintf(number, sizeof(number), ".%06u", segment);
    path = folder + "/" + std::to_string(getpid()) + "-" + std::to_string(named_ns) + number + ".opspan";
    fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  } while (fd_ < 0 && ((errno == EEXIST && segment <= 1) || errno == EINTR));
  if (fd_ < 0) return fail("create", errno);
  struct stat status;
  if (fstat(fd_, &status) != 0) return fail("look at", errno);
  device_ = status.st_dev;
  inode_ = status.st_ino;
  if (int code = reserve(fd_, 0, kPage)) return fail("make room in", code);
  void* page = map_guarded(fd_, 0, kPage);
  if (page == MAP_FAILED) return fail("map", errno);
  size_ = kPage;

  header = static_cast<FileHeader*>(page);
  header->version = kVersion;
  header->header_bytes = kPage;
  header->pid = static_cast<uint32_t>(getpid());
  header->parent_pid = static_cast<uint32_t>(getppid());
  header->open_monotonic_ns = monotonic_ns;
  header->open_utc_ns = utc_ns;
  header->producer = static_cast<uint32_t>(producer);
  header->forked = forked ? 1 : 0;
  header->session_ns = session_ns = session_ns ? session_ns : monotonic_ns;
  header->session_pid = session_pid = session_pid ? session_pid : header->pid;
  header->segment = segment;
  gethostname(header->host, sizeof(header->host) - 1);
  read_command_line(header->command_line, sizeof(header->command_line));
  std::string variables = environment_at_start();
  size_t used = copy_rank(variables, header->environment, sizeof(header->environment));
  if (shared_->processor.empty()) shared_->processor = processor_with_peaks(variables);
  copy_processor(shared_->processor, header->environment + used, sizeof(header->environment) - used);
  uint64_t magic;
  std::memcpy(&magic, kMagic, sizeof(magic));
  store(reinterpret_cast<uint64_t*>(header->magic), magic);
  return true;
}

void Session::close() {
  if (is_cut()) return;  // the header already has the time at which the file was cut or full
  header->close_utc_ns = clock_pair(&header->close_monotonic_ns);
  store(&header->state, static_cast<uint32_t>(State::kClosed));
}

void Session::detach_file() {
  strings_.clear();
  for (const Mapping& chunk : string_chunks_) unmap_guarded(chunk.base, chunk.bytes);
  string_chunks_.clear();
  string_next_ = string_end_ = nullptr;
  if (header) detach_from_file(header, kPage);
  if (is_ours(fd_)) ::close(fd_);
  fd_ = -1;
}

bool Session::is_cut() {
  struct stat status;
  int fd = descriptor();
  if (full || fd < 0 || fstat(fd, &status) != 0) return full;
  if (static_cast<uint64_t>(status.st_size) < size_) {
    size_ = static_cast<uint64_t>(status.st_size);
    mark_full("somebody has cut the file");
  } else if (status.st_nlink == 0) {
    mark_full("somebody has deleted the file");
  }
  return full;
}

void Session::mark_full(const char* why) {
  if (full) return;
  full = true;
  // Cuts off a chunk for which only part of the space could be reserved.
  [[maybe_unused]] int ignored = ftruncate(descriptor(), static_cast<off_t>(size_));
  header->close_utc_ns = clock_pair(&header->close_monotonic_ns);
  store(&header->state, static_cast<uint32_t>(State::kFull));
  if (std::exchange(shared_->has_said_full, true)) return;
  const char* what = segment ? "less is kept until that is possible" : "recording ends here, the program goes on";
  say("cannot write more to " + path + " (" + why + "): " + what);
}

void Session::remove() {
  int fd = descriptor();
  unlink(path.c_str());
  if (fd >= 0) fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(size_));
}

void Session::count_lost() { __atomic_fetch_add(&header->lost, 1, __ATOMIC_RELAXED); }

Mapping Session::add_chunk(ChunkKind kind, size_t bytes, size_t least, uint32_t tid, uint64_t first_unit) {
  if (is_cut()) return {};
  int fd = descriptor();
  int error = fd < 0 ? errno : reserve(fd, size_, bytes);
  while (error != 0 && fd >= 0 && bytes / 2 >= least) error = reserve(fd, size_, bytes /= 2);
  void* base = MAP_FAILED;
  if (error == 0) {
    fetch(size_, std::min(bytes, kAheadBytes));
    base = map_guarded(fd, size_, bytes);
    if (base == MAP_FAILED) error = errno;
  }
  if (error != 0) {
    mark_full(strerror(error));
    return {};
  }
  Mapping mapping = {base, bytes, size_};
  size_ += bytes;
  auto* head = static_cast<ChunkHeader*>(base);
  head->kind = static_cast<uint32_t>(kind);
  head->bytes = bytes;
  head->tid = tid;
  head->first_unit = first_unit;
  if (kind == ChunkKind::kHalves) prctl(PR_GET_NAME, head->thread_name);
  store(&head->magic, kChunkMagic);
  return mapping;
}

void Session::fetch(uint64_t offset, size_t bytes) {
  static constexpr char kZeros[kAheadBytes] = {};
  int fd = descriptor();
  if (fd < 0) return;
  [[maybe_unused]] ssize_t written = pwrite(fd, kZeros, bytes, static_cast<off_t>(offset));
}

char* Session::add_string_chunk(size_t need) {
  size_t least = (sizeof(ChunkHeader) + need + kPage - 1) / kPage * kPage;
  size_t last = string_chunks_.empty() ? kFirstStringChunkBytes / 2 : string_chunks_.back().bytes;
  size_t preferred = std::min({last * 2, kLastStringChunkBytes, most_chunk_bytes});
  // The size is `least` times a power of two, because add_chunk halves it until it fits.
  size_t bytes = least;
  while (bytes < preferred) bytes *= 2;
  Mapping chunk = add_chunk(ChunkKind::kStrings, bytes, least, 0, 0);
  if (!chunk.base) return nullptr;
  string_chunks_.push_back(chunk);
  string_next_ = static_cast<char*>(chunk.base) + sizeof(ChunkHeader);
  string_end_ = static_cast<char*>(chunk.base) + chunk.bytes;
  return string_next_;
}

// Ids continue from segment to segment. After some weeks they may begin again at 1; by then, the segments with the same
// ids have been deleted.
uint32_t Session::next_string() {
  uint32_t number = shared_->next_string++;
  return number ? number : shared_->next_string++;
}

uint32_t Session::intern(std::string_view text) {
  if (auto known = strings_.find(text); known != strings_.end()) return known->second;
  if (full) return 0;
  if (strings_.size() >= kMaxStrings) {
    strings_.clear();
    for (size_t i = 0; i + 1 < string_chunks_.size(); ++i) {
      unmap_guarded(string_chunks_[i].base, string_chunks_[i].bytes);
    }
    string_chunks_.erase(string_chunks_.begin(), string_chunks_.end() - 1);
  }
  text = text.substr(0, uint32_t{1} << 30);
  size_t need = (8 + text.size() + 7) / 8 * 8;
  if (static_cast<size_t>(string_end_ - string_next_) < need && !add_string_chunk(need)) return 0;
  char* entry = string_next_;
  string_next_ += need;
  uint32_t number = next_string();
  std::memcpy(entry + 4, &number, sizeof(number));
  std::memcpy(entry + 8, text.data(), text.size());
  store(reinterpret_cast<uint32_t*>(entry), static_cast<uint32_t>(text.size()) + 1);
  strings_.emplace(std::string_view(entry + 8, text.size()), number);
  return number;
}

}  // namespace opspan::capture
