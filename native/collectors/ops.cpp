#include "collectors/ops.h"

extern "C" __attribute__((visibility("default"))) const opspan::direct::Calls* opspan_collector_takes_ops(
    int version, int protocol) {
  using namespace opspan;
  if (version != direct::kVersion || !collectors::is_collecting()) return nullptr;
  return protocol == direct::kNvtx ? &collectors::kNvtxOps : &collectors::kIttOps;
}
