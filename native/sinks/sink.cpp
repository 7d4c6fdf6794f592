// Which sink is behind which door of sinks.h.
#include "sinks/sinks.h"

namespace opspan {
extern const opspan_sink kNvtxSink, kIttSink, kCaptureSink;
}

int opspan_sinks_abi(void) { return OPSPAN_SINKS_ABI; }

const opspan_sink* opspan_sink_of(int sink) {
  switch (sink) {
    case OPSPAN_NVTX:
      return &opspan::kNvtxSink;
    case OPSPAN_ITT:
      return &opspan::kIttSink;
    case OPSPAN_CAPTURE:
      return &opspan::kCaptureSink;
    default:
      return nullptr;
  }
}
