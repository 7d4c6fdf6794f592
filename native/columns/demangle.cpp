// Turns mangled names of C++ functions back into the names in the source.

#include <csetjmp>
#include <cstddef>
#include <cstring>

#include "columns/interface.h"

// libstdc++'s demangler, without a buffer: it passes on the text in small parts. A hostile name of a hundred letters
// can expand to more text than fits into memory, and abi::__cxa_demangle would try to write all of it.
extern "C" int __gcclibcxx_demangle_callback(const char* mangled, void (*append)(const char*, size_t, void*), void* to);

namespace {

struct Text {
  char* buffer;
  size_t size;
  size_t used;
  jmp_buf full;
};

void append(const char* piece, size_t size, void* to) {
  auto* text = static_cast<Text*>(to);
  // longjmp is safe here: the demangler owns no memory, and no object on the stack needs a destructor.
  if (size > text->size - text->used) std::longjmp(text->full, 1);
  std::memcpy(text->buffer + text->used, piece, size);
  text->used += size;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int64_t opspan_demangle(const char* mangled, char* buffer,
                                                                          size_t size) {
  Text text{buffer, size, 0, {}};
  if (setjmp(text.full) != 0) return -1;
  return __gcclibcxx_demangle_callback(mangled, append, &text) == 0 ? static_cast<int64_t>(text.used) : -1;
}
