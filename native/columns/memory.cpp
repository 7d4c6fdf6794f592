#include "columns/memory.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <limits>
#include <new>

namespace opspan::columns {
namespace {

constexpr size_t kLarge = size_t{1} << 20;
// The size of the processor's large pages. The system provides a large page in a fraction of the time that it needs for
// the 512 small pages of the same size.
constexpr size_t kHuge = size_t{1} << 21;
constexpr size_t kSmall = size_t{1} << 12;

char* map(size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  return static_cast<char*>(memory);
}

}  // namespace

void Deleter::operator()(void* memory) const {
  if (mapped != 0) {
    munmap(memory, mapped);
  } else {
    std::free(memory);
  }
}

std::unique_ptr<void, Deleter> allocate(size_t bytes, bool zeroed) {
  if (bytes > std::numeric_limits<size_t>::max() / 2) throw std::bad_alloc();
  if (bytes < kLarge) {
    void* memory = zeroed ? std::calloc(bytes + 1, 1) : std::malloc(bytes + 1);
    if (memory == nullptr) throw std::bad_alloc();
    return {memory, Deleter{}};
  }
  const size_t rounded = (bytes + kSmall) / kSmall * kSmall;
  if (rounded < kHuge) return {map(rounded), Deleter{rounded}};
  // Large pages begin at multiples of their size. So the mapped memory before the first large page and behind the end
  // is unmapped.
  char* memory = map(rounded + kHuge);
  const size_t before = (kHuge - reinterpret_cast<uintptr_t>(memory) % kHuge) % kHuge;
  if (before > 0) munmap(memory, before);
  memory += before;
  munmap(memory + rounded, kHuge - before);
  // Asks the system for large pages, but only for the part that fills them completely, because the rest of a last large
  // page would be wasted. If the system has no large pages, the call fails, and the memory has small ones.
  madvise(memory, rounded / kHuge * kHuge, MADV_HUGEPAGE);
  return {memory, Deleter{rounded}};
}

}  // namespace opspan::columns
