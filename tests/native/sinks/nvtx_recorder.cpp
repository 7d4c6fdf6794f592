// An NVTX tool that writes down every call, for tests to read: one line a call, fields separated by tabs:
//
//   thread  call  domain  registered|ascii  text  category  colour  payload type  payload
//
// A line break in a text is written as \x1e. With OPSPAN_RECORDER_SCHEMA=1 it understands payload schemas, and takes
// every payload to be opspan.op.
#define NVTX_NO_IMPL
#include <inttypes.h>
#include <nvtx3/nvToolsExt.h>
#include <nvtx3/nvToolsExtPayload.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <mutex>
#include <string>

namespace {

struct OpPayload {
  int64_t seq;
  uint64_t op_id;
  uint32_t fwd_tid, kind;
  nvtxStringHandle_t sizes;
};

std::mutex g_lock;
std::string g_lines;

void line(std::string rest) {
  for (char& c : rest) c = c == '\n' ? '\x1e' : c;
  std::lock_guard guard(g_lock);
  g_lines += std::to_string(syscall(SYS_gettid)) + "\t" + rest + "\n";
}

std::string number(const char* format, ...) {
  char text[64];
  va_list list;
  va_start(list, format);
  vsnprintf(text, sizeof(text), format, list);
  va_end(list);
  return text;
}

const char* text_of(const void* handle) { return handle ? static_cast<const char*>(handle) : ""; }

std::string payload(const nvtxEventAttributes_t& event) {
  switch (event.payloadType) {
    case NVTX_PAYLOAD_UNKNOWN:
      return "none\t";
    case NVTX_PAYLOAD_TYPE_INT64:
      return "int64\t" + number("%" PRId64, event.payload.llValue);
    case NVTX_PAYLOAD_TYPE_UNSIGNED_INT64:
      return "uint64\t" + number("%" PRIu64, event.payload.ullValue);
    case NVTX_PAYLOAD_TYPE_DOUBLE:
      return "double\t" + number("%g", event.payload.dValue);
    case NVTX_PAYLOAD_TYPE_EXT: {
      auto* data = reinterpret_cast<const nvtxPayloadData_t*>(event.payload.ullValue);
      auto* op = static_cast<const OpPayload*>(data->payload);
      if (event.reserved0 != 1 || data->schemaId != 1 << 24 || data->size != sizeof(OpPayload)) return "broken\t";
      return "schema\t" + number("seq=%" PRId64 " op_id=%" PRIu64, op->seq, op->op_id) +
             number(" fwd_tid=%u kind=%u sizes=", op->fwd_tid, op->kind) + text_of(op->sizes);
    }
    default:
      return "unexpected\t";
  }
}

void record(const char* call, nvtxDomainHandle_t domain, const nvtxEventAttributes_t* event) {
  bool registered = event->messageType == NVTX_MESSAGE_TYPE_REGISTERED;
  line(std::string(call) + "\t" + text_of(domain) + "\t" + (registered ? "registered" : "ascii") + "\t" +
       (registered ? text_of(event->message.registered) : event->message.ascii) + "\t" +
       number("%u\t%08x\t", event->category, event->color) + payload(*event));
}

template <class Handle>
Handle handle(const char* text) {
  return reinterpret_cast<Handle>(strdup(text));
}

int push_text(const char* text) { return line(std::string("push\t\tascii\t") + text), 0; }
int pop() { return line("pop\t"), 0; }
void mark_text(const char* text) { line(std::string("mark\t\tascii\t") + text); }
nvtxDomainHandle_t create(const char* name) { return handle<nvtxDomainHandle_t>(name); }
nvtxStringHandle_t register_string(nvtxDomainHandle_t, const char* text) {
  line(std::string("register\topspan\t\t") + text);
  return handle<nvtxStringHandle_t>(text);
}
void name_category(nvtxDomainHandle_t domain, uint32_t category, const char* name) {
  line(std::string("category\t") + text_of(domain) + "\t\t" + name + "\t" + std::to_string(category));
}
int push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* event) { return record("push", domain, event), 0; }
int pop_domain(nvtxDomainHandle_t domain) { return line(std::string("pop\t") + text_of(domain)), 0; }
void mark(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* event) { record("mark", domain, event); }
nvtxRangeId_t start(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* event) {
  record("start", domain, event);
  return 7;
}
void end(nvtxDomainHandle_t domain, nvtxRangeId_t id) {
  line(std::string("end\t") + text_of(domain) + "\t\t" + std::to_string(id));
}

uint64_t register_schema(nvtxDomainHandle_t domain, const nvtxPayloadSchemaAttr_t* schema) {
  std::string text = std::string("schema\t") + text_of(domain) + "\t\t" + schema->name;
  for (size_t i = 0; i < schema->numEntries; ++i) {
    const nvtxPayloadSchemaEntry_t& entry = schema->entries[i];
    text += std::string(" ") + entry.name + number(":%" PRIu64 "@%" PRIu64, entry.type, entry.offset);
  }
  line(text);
  return 1 << 24;
}

template <class Function>
void set(NvtxFunctionTable table, unsigned id, Function* function) {
  *table[id] = reinterpret_cast<NvtxFunctionPointer>(function);
}

}  // namespace

#define EXPORTED extern "C" __attribute__((visibility("default")))

EXPORTED int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table) {
  auto* callbacks = static_cast<const NvtxExportTableCallbacks*>(get_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable core = nullptr, core2 = nullptr;
  unsigned size = 0;
  if (!callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &core, &size)) return 0;
  if (!callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &core2, &size)) return 0;
  set(core, NVTX_CBID_CORE_RangePushA, push_text);
  set(core, NVTX_CBID_CORE_RangePop, pop);
  set(core, NVTX_CBID_CORE_MarkA, mark_text);
  set(core2, NVTX_CBID_CORE2_DomainCreateA, create);
  set(core2, NVTX_CBID_CORE2_DomainRegisterStringA, register_string);
  set(core2, NVTX_CBID_CORE2_DomainNameCategoryA, name_category);
  set(core2, NVTX_CBID_CORE2_DomainRangePushEx, push);
  set(core2, NVTX_CBID_CORE2_DomainRangePop, pop_domain);
  set(core2, NVTX_CBID_CORE2_DomainMarkEx, mark);
  set(core2, NVTX_CBID_CORE2_DomainRangeStartEx, start);
  set(core2, NVTX_CBID_CORE2_DomainRangeEnd, end);
  return 1;
}

EXPORTED int InitializeInjectionNvtxExtension(nvtxExtModuleInfo_t* module) {
  const char* wanted = getenv("OPSPAN_RECORDER_SCHEMA");
  if (!wanted || strcmp(wanted, "1") || module->moduleId != NVTX_EXT_PAYLOAD_MODULEID) return 0;
  module->segments[0].functionSlots[NVTX3EXT_CBID_nvtxPayloadSchemaRegister] =
      reinterpret_cast<intptr_t>(register_schema);
  return 1;
}

// The lines since the last call. Good until the next one.
EXPORTED const char* recorder_take() {
  static std::string taken;
  std::lock_guard guard(g_lock);
  taken.swap(g_lines);
  g_lines.clear();
  return taken.c_str();
}
