// Calls everything of NVTX that the collector records, once, and prints what NVTX returned.
#include <locale.h>
#include <nvtx3/nvToolsExtCounters.h>
#include <nvtx3/nvToolsExtPayload.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <wchar.h>

static nvtxEventAttributes_t named(const char* text) {
  nvtxEventAttributes_t event = {0};
  event.version = NVTX_VERSION;
  event.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  event.messageType = NVTX_MESSAGE_TYPE_ASCII;
  event.message.ascii = text;
  return event;
}

typedef struct {
  int64_t seq;
  nvtxStringHandle_t sizes;
  const char* note;
  uint32_t forward;
  uint8_t mode;
  char tag[5];
} Op;

typedef struct {
  Op inner;
  double x;
} Outer;

static void core(void) {
  printf("push %d\n", nvtxRangePushA("a"));
  printf("push %d\n", nvtxRangePushW(L"wide \u00fc\u20ac\U0001f600"));
  nvtxEventAttributes_t event = named("ex");
  event.category = 7;
  event.colorType = NVTX_COLOR_ARGB;
  event.color = 0xff112233;
  event.payloadType = NVTX_PAYLOAD_TYPE_INT64;
  event.payload.llValue = -5;
  printf("push %d\n", nvtxRangePushEx(&event));
  printf("pop %d\n", nvtxRangePop());
  printf("pop %d\n", nvtxRangePop());
  printf("pop %d\n", nvtxRangePop());
  printf("pop %d\n", nvtxRangePop());  // one too many

  event = named("u64");
  event.payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT64;
  event.payload.ullValue = ~0ULL;
  nvtxMarkEx(&event);
  event.payloadType = NVTX_PAYLOAD_TYPE_DOUBLE;
  event.payload.dValue = 0.5;
  event.message.ascii = "double";
  nvtxMarkEx(&event);
  event.payloadType = NVTX_PAYLOAD_TYPE_INT32;
  event.payload.iValue = -7;
  event.message.ascii = "i32";
  nvtxMarkEx(&event);
  event.payloadType = NVTX_PAYLOAD_TYPE_FLOAT;
  event.payload.fValue = 1.25f;
  event.message.ascii = "float";
  nvtxMarkEx(&event);
  nvtxMarkA("mark");
  nvtxMarkW(L"m\u00e4rk");
  nvtxMarkA(NULL);
  nvtxMarkEx(NULL);
  // An older client's structure ended before the message.
  event = named("unseen");
  event.size = offsetof(nvtxEventAttributes_t, messageType);
  event.payloadType = NVTX_PAYLOAD_TYPE_INT64;
  event.payload.llValue = 11;
  nvtxMarkEx(&event);

  nvtxRangeId_t first = nvtxRangeStartA("first");
  nvtxRangeId_t second = nvtxRangeStartW(L"second");
  event = named("third");
  nvtxRangeId_t third = nvtxRangeStartEx(&event);
  nvtxRangeEnd(first);
  nvtxRangeEnd(third);
  nvtxRangeEnd(second);
  printf("ids %d\n", first != 0 && first != second && second != third);

  nvtxNameCategoryA(7, "seven");
  nvtxNameCategoryW(8, L"\u00e4cht");
  nvtxNameOsThreadA((uint32_t)syscall(SYS_gettid), "main thread");
}

static void domains(void) {
  nvtxDomainHandle_t domain = nvtxDomainCreateA("domain");
  nvtxDomainHandle_t other = nvtxDomainCreateW(L"d\u00f6main");
  printf("same %d\n", domain == nvtxDomainCreateA("domain") && domain != other);
  nvtxEventAttributes_t event = named("outer");
  printf("push %d\n", nvtxDomainRangePushEx(domain, &event));
  event.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
  event.message.registered = nvtxDomainRegisterStringA(domain, "registered");
  printf("push %d\n", nvtxDomainRangePushEx(domain, &event));
  printf("push %d\n", nvtxDomainRangePushEx(other, &event));
  printf("push %d\n", nvtxRangePushA("default"));
  printf("pop %d\n", nvtxDomainRangePop(domain));
  printf("pop %d\n", nvtxRangePop());
  printf("pop %d\n", nvtxDomainRangePop(other));
  printf("pop %d\n", nvtxDomainRangePop(domain));
  event.message.registered = nvtxDomainRegisterStringW(other, L"r\u00e9gistered");
  nvtxDomainMarkEx(other, &event);
  event = named("async");
  nvtxDomainRangeEnd(domain, nvtxDomainRangeStartEx(domain, &event));
  nvtxDomainNameCategoryA(domain, 3, "three");
  nvtxDomainNameCategoryW(other, 3, L"dr\u00e9i");
  nvtxResourceAttributes_t resource = {0};
  resource.version = NVTX_VERSION;
  resource.size = NVTX_RESOURCE_ATTRIB_STRUCT_SIZE;
  nvtxDomainResourceDestroy(nvtxDomainResourceCreate(domain, &resource));
  nvtxDomainDestroy(other);
  nvtxInitialize(NULL);
}

static void payloads(void) {
  nvtxDomainHandle_t domain = nvtxDomainCreateA("payloads");
  const nvtxPayloadEnum_t values[] = {{"slow", 1, 0}, {"fast", 2, 1}};
  nvtxPayloadEnumAttr_t mode = {0};
  mode.fieldMask = NVTX_PAYLOAD_ENUM_ATTR_FIELD_NAME | NVTX_PAYLOAD_ENUM_ATTR_FIELD_ENTRIES |
                   NVTX_PAYLOAD_ENUM_ATTR_FIELD_NUM_ENTRIES | NVTX_PAYLOAD_ENUM_ATTR_FIELD_SIZE;
  mode.name = "mode";
  mode.entries = values;
  mode.numEntries = 2;
  mode.sizeOfEnum = 1;
  uint64_t mode_id = nvtxPayloadEnumRegister(domain, &mode);

  const nvtxPayloadSchemaEntry_t entries[] = {
      {0, NVTX_PAYLOAD_ENTRY_TYPE_INT64, "seq"},
      {0, NVTX_PAYLOAD_ENTRY_TYPE_NVTX_REGISTERED_STRING_HANDLE, "sizes"},
      {NVTX_PAYLOAD_ENTRY_FLAG_EVENT_MESSAGE, NVTX_PAYLOAD_ENTRY_TYPE_CSTRING, "note"},
      {0, NVTX_PAYLOAD_ENTRY_TYPE_UINT32, "forward"},
      {0, mode_id, "mode"},
      {0, NVTX_PAYLOAD_ENTRY_TYPE_CSTRING, "tag", NULL, 5},
  };
  nvtxPayloadSchemaAttr_t schema = {0};
  schema.fieldMask = NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_NAME | NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_TYPE |
                     NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_ENTRIES | NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_NUM_ENTRIES |
                     NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_STATIC_SIZE;
  schema.name = "op";
  schema.type = NVTX_PAYLOAD_SCHEMA_TYPE_STATIC;
  schema.entries = entries;
  schema.numEntries = sizeof(entries) / sizeof(entries[0]);
  schema.payloadStaticSize = sizeof(Op);
  uint64_t op_id = nvtxPayloadSchemaRegister(domain, &schema);

  const nvtxPayloadSchemaEntry_t outer_entries[] = {{0, op_id, "inner"}, {0, NVTX_PAYLOAD_ENTRY_TYPE_DOUBLE, "x"}};
  schema.fieldMask |= NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_SCHEMA_ID;
  schema.name = "outer";
  schema.entries = outer_entries;
  schema.numEntries = 2;
  schema.payloadStaticSize = 0;
  schema.schemaId = NVTX_PAYLOAD_SCHEMA_ID_STATIC_START + 5;
  uint64_t outer_id = nvtxPayloadSchemaRegister(domain, &schema);
  printf("schemas %d\n", op_id && mode_id && outer_id == NVTX_PAYLOAD_SCHEMA_ID_STATIC_START + 5);
  nvtxPayloadSchemaAttr_t empty = {0};
  printf("empty %d\n", (int)nvtxPayloadSchemaRegister(domain, &empty));

  Outer outer = {{-3, nvtxDomainRegisterStringA(domain, "[[2, 4]]"), "a note", 99, 2, "tag!"}, 2.5};
  nvtxPayloadData_t one[] = {{op_id, sizeof(Op), &outer.inner}};
  printf("push %d\n", nvtxRangePushPayload(domain, one, 1));  // named by its message
  nvtxEventAttributes_t event = named("attributes");
  nvtxPayloadData_t two[] = {{outer_id, sizeof(outer), &outer},
                             {NVTX_PAYLOAD_ENTRY_TYPE_CSTRING, SIZE_MAX, "free text"}};
  NVTX_PAYLOAD_EVTATTR_SET_MULTIPLE(event, two);
  printf("push %d\n", nvtxDomainRangePushEx(domain, &event));
  printf("pop %d\n", nvtxDomainRangePop(domain));
  printf("pop %d\n", nvtxRangePopPayload(domain, one, 1));
  nvtxMarkPayload(domain, one, 1);
  nvtxRangeEndPayload(domain, nvtxRangeStartPayload(domain, one, 1), one, 1);
  char raw[130];
  memset(raw, 'x', sizeof(raw));
  nvtxPayloadData_t long_one[] = {{NVTX_TYPE_PAYLOAD_SCHEMA_RAW, 96, raw}, {NVTX_TYPE_PAYLOAD_SCHEMA_RAW, 130, raw}};
  nvtxMarkPayload(domain, long_one, 2);
  printf("enabled %d\n", nvtxDomainIsEnabled(domain));
  printf("timestamp %d\n", nvtxTimestampGet() > 0);

  nvtxCounterAttr_t attributes = {0};
  attributes.structSize = sizeof(attributes);
  attributes.schemaId = NVTX_PAYLOAD_ENTRY_TYPE_DOUBLE;
  attributes.name = "loss";
  uint64_t counter = nvtxCounterRegister(domain, &attributes);
  nvtxCounterSampleInt64(domain, counter, -4);
  nvtxCounterSampleFloat64(domain, counter, 0.25);
  double value = 8;
  nvtxCounterSample(domain, counter, &value, sizeof(value));
}

int main(void) {
  setlocale(LC_ALL, "C.UTF-8");
  core();
  domains();
  payloads();
  return 0;
}
