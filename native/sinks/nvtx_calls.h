// The only header of the sinks that includes NVTX. NVTX is header-only, its symbols are hidden in this library, and its
// first call attaches a tool.
#pragma once

#include <nvtx3/nvToolsExt.h>
#include <nvtx3/nvToolsExtPayload.h>

#include <atomic>
#include <cstdint>

#include "collectors/direct.h"

namespace opspan::nvtx {

// The fields of an event in the domain `opspan`.
struct Label {
  nvtxStringHandle_t registered = nullptr;
  const char* text = nullptr;  // the message, if `registered` is null
  uint32_t category = 0;
  uint32_t color = 0;
  int32_t payload_type = NVTX_PAYLOAD_UNKNOWN;
  uint64_t payload = 0;
};

inline nvtxEventAttributes_t attributes(const Label& label) {
  nvtxEventAttributes_t event;
  event.version = NVTX_VERSION;
  event.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  event.category = label.category;
  event.colorType = label.color ? NVTX_COLOR_ARGB : NVTX_COLOR_UNKNOWN;
  event.color = label.color;
  event.payloadType = label.payload_type;
  event.reserved0 = label.payload_type == NVTX_PAYLOAD_TYPE_EXT ? 1 : 0;
  event.payload.ullValue = label.payload;
  if (label.registered) {
    event.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
    event.message.registered = label.registered;
  } else {
    event.messageType = NVTX_MESSAGE_TYPE_ASCII;
    event.message.ascii = label.text;
  }
  return event;
}

// The domain `opspan`; null until attach() has found a tool.
extern std::atomic<nvtxDomainHandle_t> g_domain;
inline nvtxDomainHandle_t domain() { return g_domain.load(std::memory_order_relaxed); }

// The direct calls of opspan's own collector; null if the tool is another one.
extern std::atomic<const direct::Calls*> g_direct;

// Creates the domain at the first call, which makes a tool attach. Returns false if there is no tool.
bool attach();
// Returns the id of the schema of label::Payload, which is registered once. Returns 0 if the tool does not support
// extended payloads.
uint64_t schema();

}  // namespace opspan::nvtx
