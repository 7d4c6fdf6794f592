// Threads use every kind of NVTX call at once, through NVTX's own client code. The collector is linked in (NVTX calls
// that a static injection). Run by tools/sanitize, which sets OPSPAN_CAPTURE_DIR; ends by itself with 0.
#include <nvtx3/nvToolsExtPayload.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "collectors/direct.h"

extern "C" const opspan::direct::Calls* opspan_collector_takes_ops(int version, int protocol);
extern "C" int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table);
extern "C" int InitializeInjectionNvtxExtension(nvtxExtModuleInfo_t* module);

namespace {

struct Payload {
  int64_t number;
  nvtxStringHandle_t text;
};

constexpr int kThreads = 4;
constexpr int kRounds = 4000;

// A sanitizer's own run-time library does not survive a fork while other threads allocate.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr bool kForks = false;
#else
constexpr bool kForks = true;
#endif

uint64_t schema_in(nvtxDomainHandle_t domain) {
  const nvtxPayloadSchemaEntry_t entries[] = {
      {0, NVTX_PAYLOAD_ENTRY_TYPE_INT64, "number", nullptr, 0, 0, nullptr, nullptr},
      {0, NVTX_PAYLOAD_ENTRY_TYPE_NVTX_REGISTERED_STRING_HANDLE, "text", nullptr, 0, 8, nullptr, nullptr},
  };
  nvtxPayloadSchemaAttr_t schema{};
  schema.fieldMask = NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_TYPE | NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_ENTRIES |
                     NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_NUM_ENTRIES;
  schema.type = NVTX_PAYLOAD_SCHEMA_TYPE_STATIC;
  schema.entries = entries;
  schema.numEntries = 2;
  return nvtxPayloadSchemaRegister(domain, &schema);
}

int wrong_levels = 0;

void told_directly(const char* name, int number) {
  using namespace opspan::direct;
  static const Calls& ops = *opspan_collector_takes_ops(kVersion, kNvtx);
  void* here = ops.thread();
  auto id = static_cast<uint64_t>(number);
  ops.begin(here, {name, 1, 0, 5, "sizes", nullptr, number, id, 0});
  ops.begin(here, {"aten::name", 2, 7, 0, nullptr, ops.keep("kept"), -1, id, 0});
  ops.end(here);
  ops.end(here);
}

void work(int thread, int rounds) {
  nvtxDomainHandle_t domain = nvtxDomainCreateA(("domain " + std::to_string(thread % 2)).c_str());
  uint64_t schema = schema_in(domain);
  std::vector<nvtxRangeId_t> open;
  for (int i = 0; i < rounds; ++i) {
    std::string name = "range " + std::to_string(i % 300);
    nvtxDomainNameCategoryA(domain, static_cast<uint32_t>(i % 50), name.c_str());
    nvtxEventAttributes_t event{};
    event.version = NVTX_VERSION;
    event.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    event.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
    event.message.registered = nvtxDomainRegisterStringA(domain, name.c_str());
    Payload payload{i, event.message.registered};
    nvtxPayloadData_t data[] = {{schema, sizeof(payload), &payload}};
    NVTX_PAYLOAD_EVTATTR_SET_MULTIPLE(event, data);
    bool good = nvtxDomainRangePushEx(domain, &event) == 0 && nvtxRangePushA(name.c_str()) == 0;
    good = good && nvtxRangePushW(L"wide") == 1;
    nvtxDomainMarkEx(domain, &event);
    told_directly(name.c_str(), i);
    open.push_back(nvtxDomainRangeStartEx(domain, &event));
    if (open.size() > 20) {
      nvtxRangeEnd(open.front());
      open.erase(open.begin());
    }
    good = good && nvtxRangePop() == 1 && nvtxRangePop() == 0 && nvtxDomainRangePop(domain) == 0;
    if (!good) __atomic_add_fetch(&wrong_levels, 1, __ATOMIC_RELAXED);
    if (thread == 0 && i % (rounds / 4) == 1) {
      std::thread([rounds] { work(1, rounds / 100); }).join();
      if (!kForks) continue;
      pid_t child = fork();
      if (child == 0) {
        for (int k = 0; k < 100; ++k) {
          nvtxDomainMarkEx(domain, &event);
          told_directly("in a fork", k);
          nvtxDomainCreateA(name.c_str());
        }
        _exit(0);
      }
      waitpid(child, nullptr, 0);
    }
  }
}

}  // namespace

int main() {
  InitializeInjectionNvtx2_fnptr = InitializeInjectionNvtx2;
  InitializeInjectionNvtxExtension_fnptr = InitializeInjectionNvtxExtension;
  if (nvtxRangePushA("outermost") != 0) return 2;  // the collector is there
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) threads.emplace_back(work, i, kRounds);
  for (std::thread& thread : threads) thread.join();
  printf("%d rounds in %d threads, %d wrong\n", kRounds, kThreads, wrong_levels);
  return wrong_levels != 0;
}
