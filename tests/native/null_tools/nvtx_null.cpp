// An NVTX tool that takes every call and does nothing: what is left of a range's cost is the caller's.
// NVTX_INJECTION64_PATH names it. With OPSPAN_NULL_SCHEMA=1 it understands payload schemas too.
#define NVTX_NO_IMPL
#include <nvtx3/nvToolsExt.h>
#include <nvtx3/nvToolsExtPayload.h>
#include <stdlib.h>
#include <string.h>

namespace {

int g_something;  // handles must not be null

nvtxDomainHandle_t create_domain(const char*) { return reinterpret_cast<nvtxDomainHandle_t>(&g_something); }
nvtxStringHandle_t register_string(nvtxDomainHandle_t, const char*) {
  return reinterpret_cast<nvtxStringHandle_t>(&g_something);
}
int push_text(const char*) { return 0; }
int pop() { return 0; }
int push(nvtxDomainHandle_t, const nvtxEventAttributes_t*) { return 0; }
int pop_domain(nvtxDomainHandle_t) { return 0; }
uint64_t register_schema(nvtxDomainHandle_t, const nvtxPayloadSchemaAttr_t*) { return 1 << 24; }

template <class Function>
void set(NvtxFunctionTable table, unsigned id, Function* function) {
  *table[id] = reinterpret_cast<NvtxFunctionPointer>(function);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table) {
  auto* callbacks = static_cast<const NvtxExportTableCallbacks*>(get_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable core = nullptr, core2 = nullptr;
  unsigned size = 0;
  if (!callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &core, &size)) return 0;
  if (!callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &core2, &size)) return 0;
  set(core, NVTX_CBID_CORE_RangePushA, push_text);
  set(core, NVTX_CBID_CORE_RangePop, pop);
  set(core2, NVTX_CBID_CORE2_DomainCreateA, create_domain);
  set(core2, NVTX_CBID_CORE2_DomainRegisterStringA, register_string);
  set(core2, NVTX_CBID_CORE2_DomainRangePushEx, push);
  set(core2, NVTX_CBID_CORE2_DomainRangePop, pop_domain);
  return 1;
}

extern "C" __attribute__((visibility("default"))) int InitializeInjectionNvtxExtension(nvtxExtModuleInfo_t* module) {
  const char* wanted = getenv("OPSPAN_NULL_SCHEMA");
  if (!wanted || strcmp(wanted, "1") || module->moduleId != NVTX_EXT_PAYLOAD_MODULEID) return 0;
  module->segments[0].functionSlots[NVTX3EXT_CBID_nvtxPayloadSchemaRegister] =
      reinterpret_cast<intptr_t>(register_schema);
  return 1;
}
