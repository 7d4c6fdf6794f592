#include <cstdio>
#include <exception>
#include <new>

#include "sweep/sweep.h"

namespace opspan::sweep {
namespace {

void say(char* error, size_t size, const char* text) {
  if (error != nullptr && size > 0) std::snprintf(error, size, "%s", text);
}

// No exception leaves the library.
template <class Sweep>
int guarded(Sweep sweep, ArrowSchema* schema, ArrowArray* array, char* error, size_t error_size) {
  try {
    sweep().give(schema, array);
    return 0;
  } catch (const std::bad_alloc&) {
    say(error, error_size, "out of memory");
  } catch (const std::exception& problem) {
    say(error, error_size, problem.what());
  }
  return -1;
}

}  // namespace
}  // namespace opspan::sweep

using namespace opspan::sweep;

#define OPSPAN_DOOR(name, ...)                                                                                  \
  int opspan_sweep_##name([[maybe_unused]] ArrowArrayStream* first, [[maybe_unused]] ArrowArrayStream* second,  \
                          [[maybe_unused]] int64_t number, ArrowSchema* schema, ArrowArray* array, char* error, \
                          size_t error_size) {                                                                  \
    return guarded([&] { return name(__VA_ARGS__); }, schema, array, error, error_size);                        \
  }

extern "C" {

#define OPSPAN_SHOWN __attribute__((visibility("default")))

OPSPAN_SHOWN int opspan_sweep_abi(void) { return 4; }

OPSPAN_SHOWN OPSPAN_DOOR(nest, Input(first), number) OPSPAN_SHOWN
    OPSPAN_DOOR(innermost, Input(first), Input(second)) OPSPAN_SHOWN
    OPSPAN_DOOR(match, Input(first), Input(second)) OPSPAN_SHOWN OPSPAN_DOOR(nearest, Input(first)) OPSPAN_SHOWN
    OPSPAN_DOOR(rollup, Input(first), Input(second)) OPSPAN_SHOWN
    OPSPAN_DOOR(link, Input(first), Input(second)) OPSPAN_SHOWN OPSPAN_DOOR(labels, Input(first), number) OPSPAN_SHOWN
    OPSPAN_DOOR(events, Input(first), Input(second), number) OPSPAN_SHOWN OPSPAN_DOOR(enclose, Input(first))
}
