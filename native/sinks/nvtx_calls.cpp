#include "sinks/nvtx_calls.h"

#include <iterator>

#include "sinks/sinks.h"

namespace opspan::nvtx {
namespace {

constexpr struct {
  uint32_t kind;
  const char* name;
} kKinds[] = {
    {OPSPAN_KIND_OP, "op"},
    {OPSPAN_KIND_BACKWARD, "backward"},
    {OPSPAN_KIND_ENGINE, "engine"},
    {OPSPAN_KIND_USER, "user"},
    {OPSPAN_KIND_MODULE, "module"},
    {OPSPAN_KIND_STEP, "step"},
    {OPSPAN_KIND_SCRIPT, "script"},
    {OPSPAN_KIND_DTYPE, "dtype"},
    {OPSPAN_KIND_CLASS, "class"},
    {OPSPAN_KIND_FEATURE, "feature"},
    {OPSPAN_KIND_LITE, "lite"},
    {OPSPAN_KIND_STATIC_OP, "static_op"},
    {OPSPAN_KIND_STATIC_MODEL, "static_model"},
};

nvtxPayloadSchemaEntry_t entry(uint64_t type, const char* name, uint64_t offset) {
  nvtxPayloadSchemaEntry_t entry = {};
  entry.type = type;
  entry.name = name;
  entry.offset = offset;
  return entry;
}

uint64_t register_schema() {
  const nvtxPayloadSchemaEntry_t entries[] = {
      entry(NVTX_PAYLOAD_ENTRY_TYPE_INT64, "seq", offsetof(OpPayload, sequence)),
      entry(NVTX_PAYLOAD_ENTRY_TYPE_UINT64, "op_id", offsetof(OpPayload, op_id)),
      entry(NVTX_PAYLOAD_ENTRY_TYPE_UINT32, "fwd_tid", offsetof(OpPayload, fwd_tid)),
      entry(NVTX_PAYLOAD_ENTRY_TYPE_UINT32, "kind", offsetof(OpPayload, kind)),
      entry(NVTX_PAYLOAD_ENTRY_TYPE_NVTX_REGISTERED_STRING_HANDLE, "sizes", offsetof(OpPayload, sizes)),
  };
  nvtxPayloadSchemaAttr_t schema = {};
  schema.fieldMask = NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_NAME | NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_TYPE |
                     NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_ENTRIES | NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_NUM_ENTRIES |
                     NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_STATIC_SIZE;
  schema.name = "opspan.op";
  schema.type = NVTX_PAYLOAD_SCHEMA_TYPE_STATIC;
  schema.entries = entries;
  schema.numEntries = std::size(entries);
  schema.payloadStaticSize = sizeof(OpPayload);
  return nvtxPayloadSchemaRegister(domain(), &schema);
}

}  // namespace

constinit std::atomic<nvtxDomainHandle_t> g_domain{nullptr};

bool attach() {
  static const bool attached = [] {
    nvtxInitialize(nullptr);
    nvtxDomainHandle_t made = nvtxDomainCreateA("opspan");
    for (const auto& kind : kKinds) {
      if (made) nvtxDomainNameCategoryA(made, kind.kind, kind.name);
    }
    g_domain.store(made);
    return made != nullptr;
  }();
  return attached;
}

uint64_t schema() {
  static const uint64_t made = attach() ? register_schema() : 0;
  return made;
}

}  // namespace opspan::nvtx
