// One file because it is one table of calls. Every call of NVTX that the collector takes, from several threads, with
// arguments that no client should pass. What cannot be told apart from good arguments (a pointer to nowhere) is not
// among them. Run by tools/sanitize with the collector linked in, and by tests/collectors as a client
// (-DOPSPAN_CLIENT); ends by itself with 0.
#include <nvtx3/nvToolsExtCounters.h>
#include <nvtx3/nvToolsExtPayload.h>

#include <cstdio>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "hostile.h"

#ifndef OPSPAN_CLIENT
extern "C" int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table);
extern "C" int InitializeInjectionNvtxExtension(nvtxExtModuleInfo_t* module);
extern "C" int opspan_collector_made_domain(const void* domain);
#endif

namespace {

constexpr int kThreads = 4;
#ifndef OPSPAN_ROUNDS
#define OPSPAN_ROUNDS 20000
#endif
constexpr int kRounds = OPSPAN_ROUNDS;

// What was registered, for every thread to use.
std::mutex lock;
std::vector<nvtxDomainHandle_t> domains;
std::vector<nvtxStringHandle_t> strings;
std::vector<uint64_t> schemas = {0, NVTX_TYPE_PAYLOAD_SCHEMA_RAW, NVTX_PAYLOAD_ENTRY_TYPE_CSTRING,
                                 NVTX_PAYLOAD_ENTRY_TYPE_NVTX_REGISTERED_STRING_HANDLE};
std::vector<uint64_t> counters = {0, 1, NVTX_COUNTER_ID_DYNAMIC_START};

template <typename T>
void keep(std::vector<T>* all, T one) {
  std::lock_guard guard(lock);
  if (all->size() < 3000) all->push_back(one);
}

template <typename T>
T any(Hostile& any, const std::vector<T>& all) {
  std::lock_guard guard(lock);
  return all[any.upto(all.size())];
}

struct Client {
  Hostile hostile;
  char bytes[512];
  nvtxPayloadData_t data[16];
  std::string name;

  explicit Client(uint64_t seed) : hostile(seed) {}

  nvtxDomainHandle_t domain() {
    std::lock_guard guard(lock);
    return hostile.handle(domains);
  }
  nvtxStringHandle_t string() {
    std::lock_guard guard(lock);
    return hostile.handle(strings);
  }

  const char* text() {
    name = "name " + std::to_string(hostile.upto(200)) + "\xff\xfe\x80";
    return hostile.one_in(8) ? nullptr : name.c_str() + (hostile.one_in(8) ? name.size() : 0);
  }
  const wchar_t* wide() {
    static constexpr wchar_t kWide[] = {L'a', 0x110000, static_cast<wchar_t>(0xffffffff), 0xd800, 0x10ffff, 0};
    return hostile.one_in(4) ? nullptr : kWide;
  }

  // A payload's size is true, or one that nobody would believe.
  nvtxPayloadData_t payload() {
    // Text without its end stands at the end of what is there.
    for (char& byte : bytes) byte = static_cast<char>(hostile.one_in(3) ? 0 : 1 + hostile.upto(255));
    bytes[sizeof(bytes) - 1] = 0;
    if (auto handle = string(); hostile.one_in(2)) memcpy(bytes, &handle, sizeof(handle));
    uint64_t size = hostile.one_in(4) ? hostile.odd() : hostile.upto(sizeof(bytes));
    if (size > sizeof(bytes) && size <= 1 << 20) size = sizeof(bytes);
    const void* at = hostile.one_in(10) ? nullptr : bytes + (size <= sizeof(bytes) ? sizeof(bytes) - size : 0);
    return {any(hostile, schemas), size, at};
  }
  size_t payloads() {
    size_t count = hostile.upto(std::size(data));
    for (size_t i = 0; i < count; ++i) data[i] = payload();
    if (!hostile.one_in(6)) return count;
    uint64_t odd = hostile.odd();
    return odd > std::size(data) && odd < 1 << 10 ? count : odd < 1 << 10 ? std::min(odd, count) : odd;
  }

  nvtxEventAttributes_t* event(nvtxEventAttributes_t* made) {
    if (hostile.one_in(20)) return nullptr;
    *made = {};
    made->version = static_cast<uint16_t>(hostile.one_in(2) ? NVTX_VERSION : hostile.odd());
    made->size = static_cast<uint16_t>(hostile.one_in(2) ? sizeof(*made) : hostile.odd());
    made->category = static_cast<uint32_t>(hostile.odd());
    made->colorType = static_cast<int32_t>(hostile.upto(4));
    made->payloadType = static_cast<int32_t>(hostile.one_in(8) ? hostile.odd() : hostile.upto(10));
    made->payload.ullValue = hostile.odd();
    if (made->payloadType == static_cast<int32_t>(NVTX_PAYLOAD_TYPE_EXT)) {
      made->reserved0 = static_cast<int32_t>(payloads());
      if (made->reserved0 >= 0 && made->reserved0 < 1 << 10 && made->reserved0 >= 16) made->reserved0 = 0;
      made->payload.ullValue = hostile.one_in(10) ? 0 : reinterpret_cast<uint64_t>(data);
    }
    switch (hostile.upto(5)) {
      case 0:
        made->messageType = NVTX_MESSAGE_TYPE_ASCII;
        made->message.ascii = text();
        break;
      case 1:
        made->messageType = NVTX_MESSAGE_TYPE_UNICODE;
        made->message.unicode = wide();
        break;
      case 2:
        made->messageType = static_cast<int32_t>(4 + hostile.odd());
        made->message.ascii = reinterpret_cast<const char*>(hostile.odd());
        if (made->messageType > 0 && made->messageType < 4) made->messageType = 77;
        break;
      default:
        made->messageType = NVTX_MESSAGE_TYPE_REGISTERED;
        made->message.registered = string();
    }
    return made;
  }

  void register_schema() {
    std::vector<nvtxPayloadSchemaEntry_t> entries(1 + hostile.upto(6));
    nvtxPayloadSchemaAttr_t schema{};
    schema.schemaId = hostile.one_in(2) ? NVTX_PAYLOAD_SCHEMA_ID_STATIC_START + hostile.upto(40) : hostile.odd();
    for (nvtxPayloadSchemaEntry_t& entry : entries) {
      entry.flags = hostile.one_in(2) ? 0 : hostile.odd();
      entry.type = hostile.one_in(3) ? schema.schemaId : hostile.one_in(2) ? any(hostile, schemas) : hostile.upto(120);
      entry.name = text() ? "entry" : nullptr;
      entry.arrayOrUnionDetail = hostile.one_in(2) ? hostile.upto(5) : hostile.odd();
      entry.offset = hostile.one_in(2) ? 0 : hostile.odd();
      // The pointers that a payload holds are the client's word: nobody can look whether they lead somewhere.
      if (entry.type == NVTX_PAYLOAD_ENTRY_TYPE_CSTRING || entry.type == NVTX_PAYLOAD_ENTRY_TYPE_CSTRING_UTF8) {
        entry.arrayOrUnionDetail |= 1;
      }
    }
    schema.fieldMask = hostile.one_in(6) ? hostile.odd() : ~uint64_t{0};
    schema.name = text();
    schema.type = hostile.one_in(3) ? hostile.odd() : NVTX_PAYLOAD_SCHEMA_TYPE_STATIC;
    schema.entries = hostile.one_in(20) ? nullptr : entries.data();
    uint64_t count = hostile.odd();
    schema.numEntries = count > 1 << 16 ? count : std::min<uint64_t>(count, entries.size());
    schema.payloadStaticSize = hostile.one_in(2) ? 0 : hostile.odd();
    schema.packAlign = hostile.one_in(2) ? 0 : hostile.odd();
    keep(&schemas, nvtxPayloadSchemaRegister(domain(), hostile.one_in(30) ? nullptr : &schema));
  }

  void register_enum() {
    std::vector<nvtxPayloadEnum_t> entries(1 + hostile.upto(4));
    for (nvtxPayloadEnum_t& entry : entries) entry = {text() ? "value" : nullptr, hostile.odd(), hostile.one_in(2)};
    nvtxPayloadEnumAttr_t made{};
    made.fieldMask = hostile.one_in(6) ? hostile.odd() : ~uint64_t{0};
    made.name = text();
    made.entries = hostile.one_in(20) ? nullptr : entries.data();
    uint64_t count = hostile.odd();
    made.numEntries = count > 1 << 16 ? count : std::min<uint64_t>(count, entries.size());
    made.sizeOfEnum = hostile.odd();
    made.schemaId = hostile.one_in(2) ? NVTX_PAYLOAD_SCHEMA_ID_STATIC_START + hostile.upto(40) : hostile.odd();
    keep(&schemas, nvtxPayloadEnumRegister(domain(), hostile.one_in(30) ? nullptr : &made));
  }

  void counter() {
    nvtxCounterAttr_t made{};
    made.structSize = hostile.one_in(2) ? sizeof(made) : hostile.odd();
    made.schemaId = hostile.one_in(2) ? hostile.upto(80) : hostile.odd();
    made.name = text();
    made.counterId = hostile.odd();
    if (hostile.one_in(8)) keep(&counters, nvtxCounterRegister(domain(), hostile.one_in(20) ? nullptr : &made));
    uint64_t id = hostile.one_in(4) ? hostile.odd() : any(hostile, counters) + (hostile.one_in(4) ? hostile.odd() : 0);
    double value = static_cast<double>(hostile.odd());
    nvtxCounterSampleInt64(domain(), id, static_cast<int64_t>(hostile.odd()));
    nvtxCounterSampleFloat64(domain(), id, value);
    nvtxCounterSample(domain(), id, hostile.one_in(10) ? nullptr : &value, hostile.odd());
    nvtxCounterSampleNoValue(domain(), id, static_cast<uint8_t>(hostile.odd()));
  }

  void round() {
    nvtxEventAttributes_t made;
    nvtxDomainHandle_t where = domain();
    switch (hostile.upto(24)) {
      case 0:
        keep(&domains, nvtxDomainCreateA(text()));
        nvtxDomainCreateW(wide());
        break;
      case 1:
        keep(&strings, nvtxDomainRegisterStringA(where, text()));
        nvtxDomainRegisterStringW(where, wide());
        break;
      case 2:
        register_schema();
        break;
      case 3:
        register_enum();
        break;
      case 4:
        counter();
        break;
      case 5:
        nvtxDomainNameCategoryA(where, static_cast<uint32_t>(hostile.odd()), text());
        nvtxDomainNameCategoryW(where, static_cast<uint32_t>(hostile.odd()), wide());
        nvtxNameOsThreadA(static_cast<uint32_t>(hostile.odd()), text());
        nvtxNameOsThreadW(static_cast<uint32_t>(hostile.odd()), wide());
        break;
      case 6:
        nvtxRangeEnd(hostile.odd());
        nvtxDomainRangeEnd(where, hostile.odd());
        break;
      case 7:
        nvtxDomainRangeEnd(where, nvtxDomainRangeStartEx(domain(), event(&made)));
        break;
      case 8:
        nvtxMarkA(text());
        nvtxMarkW(wide());
        nvtxMarkEx(event(&made));
        break;
      case 9:
        nvtxDomainMarkEx(where, event(&made));
        break;
      case 10:
        nvtxRangePushA(text());
        nvtxRangePushW(wide());
        break;
      case 11:
        nvtxRangePop();
        break;
      case 12:
        nvtxRangePushPayload(where, data, payloads());
        break;
      case 13:
        nvtxRangePopPayload(where, data, payloads());
        break;
      case 14:
        nvtxMarkPayload(where, hostile.one_in(10) ? nullptr : data, payloads());
        break;
      case 15:
        nvtxRangeEndPayload(where, nvtxRangeStartPayload(where, data, payloads()), data, payloads());
        break;
      case 16:
        nvtxDomainDestroy(where);
        nvtxInitialize(data);
        nvtxDomainIsEnabled(where);
        break;
      case 17:
      case 18:
      case 19:
        nvtxDomainRangePop(where);
        break;
      default:
        nvtxDomainRangePushEx(where, event(&made));
    }
  }
};

void work(uint64_t seed) {
  Client client(seed);
  for (int i = 0; i < kRounds; ++i) client.round();
}

// An enumeration of no size in a schema: what asks for its alignment divides by it.
bool serves_on() {
  nvtxDomainHandle_t domain = nvtxDomainCreateA("afterwards");
  nvtxPayloadEnum_t value = {"none", 0, 0};
  nvtxPayloadEnumAttr_t empty{};
  empty.fieldMask = ~uint64_t{0};
  empty.entries = &value;
  empty.numEntries = 1;
  uint64_t type = nvtxPayloadEnumRegister(domain, &empty);
  nvtxPayloadSchemaEntry_t entries[] = {{0, NVTX_PAYLOAD_ENTRY_TYPE_UINT8, "byte"}, {0, type, "none"}};
  nvtxPayloadSchemaAttr_t schema{};
  schema.fieldMask = ~uint64_t{0};
  schema.type = NVTX_PAYLOAD_SCHEMA_TYPE_STATIC;
  schema.entries = entries;
  schema.numEntries = 2;
  bool good = nvtxPayloadSchemaRegister(domain, &schema) != 0;
  nvtxEventAttributes_t event{};
  event.version = NVTX_VERSION;
  event.size = sizeof(event);
  event.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
  event.message.registered = nvtxDomainRegisterStringA(domain, "still recorded");
  good = good && nvtxDomainRangePushEx(domain, &event) == 0 && nvtxDomainRangePop(domain) == 0;
  return good && nvtxDomainRangePop(domain) < 0;
}

}  // namespace

int main() {
#ifndef OPSPAN_CLIENT
  InitializeInjectionNvtx2_fnptr = InitializeInjectionNvtx2;
  InitializeInjectionNvtxExtension_fnptr = InitializeInjectionNvtxExtension;
  InitializeInjectionNvtx2(nullptr);
  InitializeInjectionNvtx2([](uint32_t) -> const void* { return nullptr; });
  InitializeInjectionNvtxExtension(nullptr);
  nvtxExtModuleSegment_t segment = {100, 100, nullptr};
  nvtxExtModuleInfo_t module = {3, sizeof(module), NVTX_EXT_PAYLOAD_MODULEID, 0, 0, nullptr, nullptr, nullptr};
  InitializeInjectionNvtxExtension(&module);
  module.segments = &segment;
  module.segmentsCount = 1;
  InitializeInjectionNvtxExtension(&module);
  if (opspan_collector_made_domain(&module)) return 3;
#endif
  if (nvtxRangePushA("outermost") != 0) return 2;  // the collector is there
  domains.push_back(nvtxDomainCreateA("domain"));
  strings.push_back(nvtxDomainRegisterStringA(domains[0], "string"));
  std::vector<std::thread> threads;
  nvtxMarkPayload(domains[0], nullptr, 0);  // threads that initialise it at the same time race in its header
  for (int i = 0; i < kThreads; ++i) threads.emplace_back(work, i);
  for (std::thread& thread : threads) thread.join();
  bool good = serves_on();
  printf("%d hostile rounds in %d threads, %s\n", kRounds, kThreads, good ? "served on" : "broken");
  return !good;
}
