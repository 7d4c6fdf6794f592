// Lets a program's NVTX find this library. Every shared object that contains NVTX calls InitializeInjectionNvtx2 once,
// which fills the object's function tables. Entries that are not filled (CUDA, OpenCL and sync objects, resources)
// become no-ops.
#include <wchar.h>

#include "collectors/nvtx_events.h"

namespace opspan::collectors {
namespace {

using Handle = nvtxDomainHandle_t;
using Attributes = const nvtxEventAttributes_t*;

std::string_view text_of(const char* text) { return text ? std::string_view(text) : std::string_view(); }
Domain& default_domain() { return Domain::of(nullptr); }
Handle handle_of(std::string_view name) { return reinterpret_cast<Handle>(Domain::create(name)); }
nvtxStringHandle_t register_string(std::string_view text) {
  return reinterpret_cast<nvtxStringHandle_t>(constant(text));
}

using Table = NvtxFunctionTable;

template <typename Function>
void set(Table table, unsigned size, unsigned id, Function* function) {
  if (id < size && table[id]) *table[id] = reinterpret_cast<NvtxFunctionPointer>(function);
}

// clang-format off: a table with one call on each line
void fill_core(Table t, unsigned n) {
  set(t, n, NVTX_CBID_CORE_MarkEx, +[](Attributes a) { mark(default_domain(), EventInput(a)); });
  set(t, n, NVTX_CBID_CORE_MarkA, +[](const char* m) { mark(default_domain(), EventInput(text_of(m))); });
  set(t, n, NVTX_CBID_CORE_MarkW, +[](const wchar_t* m) { mark(default_domain(), EventInput(to_utf8(m))); });
  set(t, n, NVTX_CBID_CORE_RangeStartEx, +[](Attributes a) { return start_range(default_domain(), EventInput(a)); });
  set(t, n, NVTX_CBID_CORE_RangeStartA,
      +[](const char* m) { return start_range(default_domain(), EventInput(text_of(m))); });
  set(t, n, NVTX_CBID_CORE_RangeStartW,
      +[](const wchar_t* m) { return start_range(default_domain(), EventInput(to_utf8(m))); });
  set(t, n, NVTX_CBID_CORE_RangeEnd, +[](nvtxRangeId_t id) { end_range(default_domain(), id); });
  set(t, n, NVTX_CBID_CORE_RangePushEx, +[](Attributes a) { return push(default_domain(), EventInput(a)); });
  set(t, n, NVTX_CBID_CORE_RangePushA, +[](const char* m) { return push(default_domain(), EventInput(text_of(m))); });
  set(t, n, NVTX_CBID_CORE_RangePushW,
      +[](const wchar_t* m) { return push(default_domain(), EventInput(to_utf8(m))); });
  set(t, n, NVTX_CBID_CORE_RangePop, +[] { return pop(default_domain()); });
  set(t, n, NVTX_CBID_CORE_NameCategoryA,
      +[](uint32_t c, const char* m) { default_domain().name_category(c, text_of(m)); });
  set(t, n, NVTX_CBID_CORE_NameCategoryW,
      +[](uint32_t c, const wchar_t* m) { default_domain().name_category(c, to_utf8(m)); });
  set(t, n, NVTX_CBID_CORE_NameOsThreadA, +[](uint32_t tid, const char* m) { name_thread(tid, text_of(m)); });
  set(t, n, NVTX_CBID_CORE_NameOsThreadW, +[](uint32_t tid, const wchar_t* m) { name_thread(tid, to_utf8(m)); });
}

void fill_core2(Table t, unsigned n) {
  set(t, n, NVTX_CBID_CORE2_DomainMarkEx, +[](Handle d, Attributes a) { mark(Domain::of(d), EventInput(a)); });
  set(t, n, NVTX_CBID_CORE2_DomainRangeStartEx,
      +[](Handle d, Attributes a) { return start_range(Domain::of(d), EventInput(a)); });
  set(t, n, NVTX_CBID_CORE2_DomainRangeEnd, +[](Handle d, nvtxRangeId_t id) { end_range(Domain::of(d), id); });
  set(t, n, NVTX_CBID_CORE2_DomainRangePushEx,
      +[](Handle d, Attributes a) { return push(Domain::of(d), EventInput(a)); });
  set(t, n, NVTX_CBID_CORE2_DomainRangePop, +[](Handle d) { return pop(Domain::of(d)); });
  set(t, n, NVTX_CBID_CORE2_DomainNameCategoryA,
      +[](Handle d, uint32_t c, const char* m) { Domain::of(d).name_category(c, text_of(m)); });
  set(t, n, NVTX_CBID_CORE2_DomainNameCategoryW,
      +[](Handle d, uint32_t c, const wchar_t* m) { Domain::of(d).name_category(c, to_utf8(m)); });
  set(t, n, NVTX_CBID_CORE2_DomainRegisterStringA, +[](Handle, const char* m) { return register_string(text_of(m)); });
  set(t, n, NVTX_CBID_CORE2_DomainRegisterStringW,
      +[](Handle, const wchar_t* m) { return register_string(to_utf8(m)); });
  set(t, n, NVTX_CBID_CORE2_DomainCreateA, +[](const char* m) { return handle_of(text_of(m)); });
  set(t, n, NVTX_CBID_CORE2_DomainCreateW, +[](const wchar_t* m) { return handle_of(to_utf8(m)); });
}
// clang-format on

}  // namespace
}  // namespace opspan::collectors

// Returns whether this library made the domain. opspan's own sinks look for this function in the library that receives
// ITT's calls, and so find out whether that library is NVTX's tool as well (sinks/one_tool.cpp).
extern "C" __attribute__((visibility("default"))) int opspan_collector_made_domain(const void* domain) {
  return opspan::collectors::Domain::is_ours(domain);
}

extern "C" __attribute__((visibility("default"))) int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table) {
  using namespace opspan::collectors;
  if (!is_collecting() || !get_table) return 0;
  auto* callbacks = static_cast<const NvtxExportTableCallbacks*>(get_table(NVTX_ETID_CALLBACKS));
  if (!callbacks || callbacks->struct_size < sizeof(NvtxExportTableCallbacks)) return 0;
  auto fill = [callbacks](NvtxCallbackModule module, void (*filler)(NvtxFunctionTable, unsigned)) {
    NvtxFunctionTable table = nullptr;
    unsigned size = 0;
    if (callbacks->GetModuleFunctionTable(module, &table, &size) && table) filler(table, size);
  };
  fill(NVTX_CB_MODULE_CORE, fill_core);
  fill(NVTX_CB_MODULE_CORE2, fill_core2);
  return 1;
}
