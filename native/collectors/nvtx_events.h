// NVTX's ranges and marks, both from its plain calls and from the calls that pass only payloads.
#pragma once

#include "collectors/nvtx_payload.h"

namespace opspan::collectors {

// The content of an event, in any of the forms in which a client passes it.
struct EventInput {
  EventInput() = default;
  explicit EventInput(const nvtxEventAttributes_t* all) : attributes(all) {}
  explicit EventInput(std::string_view message) : text(message) {}
  EventInput(const nvtxPayloadData_t* first, size_t count) : payloads(first), payload_count(count) {}

  const nvtxEventAttributes_t* attributes = nullptr;
  std::string_view text;
  const nvtxPayloadData_t* payloads = nullptr;
  size_t payload_count = 0;
};

// These functions return what NVTX's calls return. push and pop return the zero-based level of the range (-1: there is
// no range to pop). start_range returns the id of the range.
int push(Domain& domain, const EventInput& input);
int pop(Domain& domain, const EventInput& input = {});
uint64_t start_range(Domain& domain, const EventInput& input);
void end_range(Domain& domain, uint64_t id, const EventInput& input = {});
void mark(Domain& domain, const EventInput& input);
void name_thread(uint32_t tid, std::string_view text);

}  // namespace opspan::collectors
