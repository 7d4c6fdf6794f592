// Makes memory pages of 64 KiB for the program that this is linked with, as some kernels for aarch64 have: mmap refuses
// what does not begin at such a page, and maps or unmaps whole pages.
#include <dlfcn.h>
#include <errno.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdint>

namespace {

constexpr uintptr_t kLargePage = 65536;

template <class Function>
Function* real(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

size_t whole_pages(size_t bytes) { return (bytes + kLargePage - 1) / kLargePage * kLargePage; }

}  // namespace

extern "C" {

long sysconf(int name) noexcept {
  static auto* const next = real<long(int)>("sysconf");
  return name == _SC_PAGESIZE ? static_cast<long>(kLargePage) : next(name);
}

void* mmap(void* address, size_t bytes, int protection, int flags, int fd, off_t offset) noexcept {
  static auto* const next = real<void*(void*, size_t, int, int, int, off_t)>("mmap");
  static auto* const next_munmap = real<int(void*, size_t)>("munmap");
  if (static_cast<uint64_t>(offset) % kLargePage || reinterpret_cast<uintptr_t>(address) % kLargePage) {
    errno = EINVAL;
    return MAP_FAILED;
  }
  bytes = whole_pages(bytes);
  if (address) return next(address, bytes, protection, flags, fd, offset);
  void* room = next(nullptr, bytes + kLargePage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (room == MAP_FAILED) return room;
  const auto begin = reinterpret_cast<uintptr_t>(room);
  const uintptr_t page = whole_pages(begin);
  if (page > begin) next_munmap(room, page - begin);
  next_munmap(reinterpret_cast<void*>(page + bytes), begin + kLargePage - page);
  return next(reinterpret_cast<void*>(page), bytes, protection, flags | MAP_FIXED, fd, offset);
}

int munmap(void* address, size_t bytes) noexcept {
  static auto* const next = real<int(void*, size_t)>("munmap");
  if (reinterpret_cast<uintptr_t>(address) % kLargePage) {
    errno = EINVAL;
    return -1;
  }
  return next(address, whole_pages(bytes));
}

long syscall(long number, ...) noexcept {
  static auto* const next = real<long(long, ...)>("syscall");
  long words[6];
  va_list arguments;
  va_start(arguments, number);
  for (long& word : words) word = va_arg(arguments, long);
  va_end(arguments);
  if (number == SYS_mmap) {
    if (static_cast<uintptr_t>(words[0]) % kLargePage || static_cast<uintptr_t>(words[5]) % kLargePage) {
      errno = EINVAL;
      return -1;
    }
    words[1] = static_cast<long>(whole_pages(static_cast<size_t>(words[1])));
  }
  return next(number, words[0], words[1], words[2], words[3], words[4], words[5]);
}

}  // extern "C"
