#include "capture/guard.h"

#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <iterator>
#include <mutex>

namespace opspan::capture {
namespace {

// A table of fixed size with the mapped parts of files. The signal handler can read it without locks or allocation,
// which are forbidden there. When the table is full, further parts are not guarded.
struct Range {
  std::atomic<uintptr_t> begin{0};  // 0: the entry is free; this field is written last and cleared first
  std::atomic<size_t> bytes{0};
};
constexpr size_t kRanges = 1 << 13;
constinit Range g_ranges[kRanges];
struct sigaction g_previous;

constexpr uintptr_t kReserved = 1;  // value of `begin` while the entry is being written

// Pages of memory, which can be larger than those of the file (kPage): kernels for aarch64 may have pages of 64 KiB.
// Each mapping begins and ends at such a page, and maps more of the file than was asked for.
uintptr_t page_bytes() {
  static const auto bytes = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

uintptr_t page_of(uintptr_t address) { return address & ~(page_bytes() - 1); }
uintptr_t page_of(const void* address) { return page_of(reinterpret_cast<uintptr_t>(address)); }

size_t first_place(uintptr_t base) { return base / 4096 * 0x9e3779b97f4a7c15 >> 51; }

void add(uintptr_t base, size_t bytes) {
  for (size_t i = 0; i < kRanges; ++i) {
    Range& range = g_ranges[(first_place(base) + i) % kRanges];
    uintptr_t free = 0;
    if (!range.begin.compare_exchange_strong(free, kReserved, std::memory_order_acquire)) continue;
    range.bytes.store(bytes, std::memory_order_relaxed);
    range.begin.store(base, std::memory_order_release);
    return;
  }
}

void remove(uintptr_t base) {
  for (size_t i = 0; i < kRanges; ++i) {
    Range& range = g_ranges[(first_place(base) + i) % kRanges];
    if (range.begin.load(std::memory_order_relaxed) != base) continue;
    range.begin.store(0, std::memory_order_release);
    return;
  }
}

// Maps zeros over the pages from `from` to `to`.
bool map_zeros(uintptr_t from, uintptr_t to) {
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
  // Calls the kernel directly: another library may have replaced mmap(), and its function may not be safe in a signal
  // handler.
  return syscall(SYS_mmap, from, to - from, PROT_READ | PROT_WRITE, kFlags, -1, 0) != -1;
}

bool map_zeros_at(uintptr_t address) {
  for (const Range& range : g_ranges) {
    uintptr_t begin = range.begin.load(std::memory_order_acquire);
    if (begin <= kReserved || address - begin >= range.bytes.load(std::memory_order_relaxed)) continue;
    return map_zeros(page_of(address), begin + range.bytes.load(std::memory_order_relaxed));
  }
  return false;
}

void on_bus_error(int signal, siginfo_t* info, void* context) {
  int error = errno;
  bool is_fault = info->si_code > 0;  // the kernel raised it; no process sent it
  if (is_fault && map_zeros_at(reinterpret_cast<uintptr_t>(info->si_addr))) {
    errno = error;
    return;
  }
  if (g_previous.sa_flags & SA_SIGINFO) return g_previous.sa_sigaction(signal, info, context);
  if (g_previous.sa_handler == SIG_IGN && !is_fault) return;
  if (g_previous.sa_handler != SIG_DFL && g_previous.sa_handler != SIG_IGN) return g_previous.sa_handler(signal);
  // Restores the default action, which ends the program. If a fault raised the signal, it happens again once this
  // handler returns. If a process sent the signal, this function sends it again.
  struct sigaction standard = {};
  standard.sa_handler = SIG_DFL;
  sigaction(SIGBUS, &standard, nullptr);
  if (!is_fault) raise(signal);
}

void install() {
  sigaction(SIGBUS, nullptr, &g_previous);
  struct sigaction ours = {};
  ours.sa_sigaction = on_bus_error;
  ours.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&ours.sa_mask);
  sigaction(SIGBUS, &ours, nullptr);
}

}  // namespace

void* map_guarded(int fd, uint64_t offset, size_t bytes) {
  static std::once_flag once;
  std::call_once(once, install);
  const size_t before = offset % page_bytes();  // bytes between the begin of a page and the part
  void* page =
      mmap(nullptr, before + bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, static_cast<off_t>(offset - before));
  if (page == MAP_FAILED) return page;
  char* base = static_cast<char*>(page) + before;
  add(reinterpret_cast<uintptr_t>(base), bytes);
  return base;
}

void detach_from_file(void* base, size_t bytes) { map_zeros(page_of(base), reinterpret_cast<uintptr_t>(base) + bytes); }

void unmap_guarded(void* base, size_t bytes) {
  remove(reinterpret_cast<uintptr_t>(base));
  const uintptr_t page = page_of(base);
  munmap(reinterpret_cast<void*>(page), reinterpret_cast<uintptr_t>(base) + bytes - page);
}

}  // namespace opspan::capture
