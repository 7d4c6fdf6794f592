// NVTX's extended payloads: structures that the client defines and describes by schemas.
#pragma once

#include "collectors/nvtx_domain.h"

namespace opspan::collectors {

// The payloads of one event.
class Payloads {
 public:
  Payloads(const Domain& domain, const nvtxPayloadData_t* first, size_t count)
      : domain_(&domain),
        first_(first),
        count_(first && count < kMost ? count : 0),
        refused_(first && count >= kMost) {}

  // Sets name, category and colour from the payloads, before the event is written.
  void apply(capture::Log& log, capture::Event* event) const;
  // Writes the payloads themselves, after the event.
  void write(capture::Log& log, const capture::Place& place) const;

 private:
  // The most payloads of an event. A larger count means that the client never set this field.
  static constexpr size_t kMost = 1 << 10;
  const Domain* domain_;
  const nvtxPayloadData_t* first_;
  size_t count_;
  bool refused_;
};

uint64_t register_schema(nvtxDomainHandle_t domain, const nvtxPayloadSchemaAttr_t* attributes);
uint64_t register_enum(nvtxDomainHandle_t domain, const nvtxPayloadEnumAttr_t* attributes);

}  // namespace opspan::collectors
