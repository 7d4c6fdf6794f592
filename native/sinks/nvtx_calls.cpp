#include "sinks/nvtx_calls.h"

#include <iterator>

#include "capture/label.h"
#include "sinks/direct.h"
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

uint64_t register_schema() {
  nvtxPayloadSchemaEntry_t entries[std::size(label::kFields)] = {};
  for (size_t i = 0; i < std::size(entries); ++i) {
    entries[i].type = label::kFields[i].type;
    entries[i].name = label::kFields[i].name;
    entries[i].offset = label::kFields[i].offset;
  }
  nvtxPayloadSchemaAttr_t schema = {};
  schema.fieldMask = NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_NAME | NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_TYPE |
                     NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_ENTRIES | NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_NUM_ENTRIES |
                     NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_STATIC_SIZE;
  schema.name = label::kSchema;
  schema.type = NVTX_PAYLOAD_SCHEMA_TYPE_STATIC;
  schema.entries = entries;
  schema.numEntries = std::size(entries);
  schema.payloadStaticSize = sizeof(label::Payload);
  return nvtxPayloadSchemaRegister(domain(), &schema);
}

}  // namespace

constinit std::atomic<nvtxDomainHandle_t> g_domain{nullptr};
constinit std::atomic<const direct::Calls*> g_direct{nullptr};

bool attach() {
  static const bool is_attached = [] {
    nvtxInitialize(nullptr);
    nvtxDomainHandle_t handle = nvtxDomainCreateA(label::kDomain);
    for (const auto& kind : kKinds) {
      if (handle) nvtxDomainNameCategoryA(handle, kind.kind, kind.name);
    }
    void* push = reinterpret_cast<void*>(NVTX_VERSIONED_IDENTIFIER(nvtxGlobals).nvtxDomainRangePushEx_impl_fnptr);
    if (handle) g_direct.store(direct::find(push, direct::kNvtx));
    g_domain.store(handle);
    return handle != nullptr;
  }();
  return is_attached;
}

uint64_t schema() {
  static const uint64_t id = attach() ? register_schema() : 0;
  return id;
}

}  // namespace opspan::nvtx
