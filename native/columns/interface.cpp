#include "columns/interface.h"

#include "columns/guarded.h"

using namespace opspan::columns;

#define OPSPAN_CALL(name, ...)                                                                                    \
  int opspan_columns_##name([[maybe_unused]] ArrowArrayStream* first, [[maybe_unused]] ArrowArrayStream* second,  \
                            [[maybe_unused]] int64_t number, ArrowSchema* schema, ArrowArray* array, char* error, \
                            size_t error_size) {                                                                  \
    return guarded([&] { name(__VA_ARGS__).give(schema, array); }, error, error_size);                            \
  }

extern "C" {

#define OPSPAN_SHOWN __attribute__((visibility("default")))

OPSPAN_SHOWN int opspan_columns_abi(void) { return 16; }

OPSPAN_SHOWN OPSPAN_CALL(nest, Input(first), number) OPSPAN_SHOWN
    OPSPAN_CALL(innermost, Input(first), Input(second)) OPSPAN_SHOWN
    OPSPAN_CALL(cover, Input(first), Input(second)) OPSPAN_SHOWN
    OPSPAN_CALL(covered, Input(first), Input(second)) OPSPAN_SHOWN
    OPSPAN_CALL(within, Input(first), Input(second)) OPSPAN_SHOWN
    OPSPAN_CALL(cut, Input(first), Input(second)) OPSPAN_SHOWN
    OPSPAN_CALL(match, Input(first), Input(second)) OPSPAN_SHOWN OPSPAN_CALL(nearest, Input(first)) OPSPAN_SHOWN
    OPSPAN_CALL(rollup, Input(first), Input(second)) OPSPAN_SHOWN
    OPSPAN_CALL(link, Input(first), Input(second)) OPSPAN_SHOWN OPSPAN_CALL(labels, Input(first), number) OPSPAN_SHOWN
    OPSPAN_CALL(events, Input(first), Input(second), number) OPSPAN_SHOWN
    OPSPAN_CALL(enclose, Input(first)) OPSPAN_SHOWN OPSPAN_CALL(protobuf, Input(first), number) OPSPAN_SHOWN
    OPSPAN_CALL(timeline, Input(first)) OPSPAN_SHOWN OPSPAN_CALL(metadata, Input(first), number) OPSPAN_SHOWN
    OPSPAN_CALL(json_objects, Input(first), number) OPSPAN_SHOWN OPSPAN_CALL(places, Input(first), number) OPSPAN_SHOWN
    OPSPAN_CALL(blocks, Input(first), number) OPSPAN_SHOWN
    OPSPAN_CALL(replay, Input(first), Input(second), number) OPSPAN_SHOWN
    OPSPAN_CALL(latest, Input(first), Input(second), number) OPSPAN_SHOWN OPSPAN_CALL(perf, Input(first)) OPSPAN_SHOWN
    OPSPAN_CALL(sqlite, Input(first), Input(second), number)
}
