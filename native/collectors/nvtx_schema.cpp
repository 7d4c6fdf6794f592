// Turns a client's schema into a Schema: computes offsets, copies names, and finds the fields whose values mean
// something only in this process.
#include <string.h>

#include <algorithm>
#include <bit>
#include <iterator>

#include "collectors/nvtx_payload.h"

namespace opspan::collectors {
namespace {

struct Layout {
  size_t bytes;
  size_t align;
};

template <typename T>
constexpr Layout layout() {
  return {sizeof(T), alignof(T)};
}

// Returns the layout of a predefined type in this process. `bytes` is 0 if the type is not known.
Layout layout_of_type(uint64_t type) {
  switch (type) {
    case NVTX_PAYLOAD_ENTRY_TYPE_CHAR:
    case NVTX_PAYLOAD_ENTRY_TYPE_UCHAR:
    case NVTX_PAYLOAD_ENTRY_TYPE_INT8:
    case NVTX_PAYLOAD_ENTRY_TYPE_UINT8:
    case NVTX_PAYLOAD_ENTRY_TYPE_CHAR8:
    case NVTX_PAYLOAD_ENTRY_TYPE_BYTE:
      return {1, 1};
    case NVTX_PAYLOAD_ENTRY_TYPE_SHORT:
    case NVTX_PAYLOAD_ENTRY_TYPE_USHORT:
    case NVTX_PAYLOAD_ENTRY_TYPE_INT16:
    case NVTX_PAYLOAD_ENTRY_TYPE_UINT16:
    case NVTX_PAYLOAD_ENTRY_TYPE_CHAR16:
    case NVTX_PAYLOAD_ENTRY_TYPE_FLOAT16:
    case NVTX_PAYLOAD_ENTRY_TYPE_BF16:
      return {2, 2};
    case NVTX_PAYLOAD_ENTRY_TYPE_INT:
    case NVTX_PAYLOAD_ENTRY_TYPE_UINT:
    case NVTX_PAYLOAD_ENTRY_TYPE_INT32:
    case NVTX_PAYLOAD_ENTRY_TYPE_UINT32:
    case NVTX_PAYLOAD_ENTRY_TYPE_FLOAT:
    case NVTX_PAYLOAD_ENTRY_TYPE_FLOAT32:
    case NVTX_PAYLOAD_ENTRY_TYPE_TF32:
    case NVTX_PAYLOAD_ENTRY_TYPE_CHAR32:
    case NVTX_PAYLOAD_ENTRY_TYPE_CATEGORY:
    case NVTX_PAYLOAD_ENTRY_TYPE_COLOR_ARGB:
    case NVTX_PAYLOAD_ENTRY_TYPE_PID_UINT32:
    case NVTX_PAYLOAD_ENTRY_TYPE_TID_UINT32:
      return {4, 4};
    case NVTX_PAYLOAD_ENTRY_TYPE_WCHAR:
      return layout<wchar_t>();
    case NVTX_PAYLOAD_ENTRY_TYPE_LONG:
    case NVTX_PAYLOAD_ENTRY_TYPE_ULONG:
      return layout<long>();
    case NVTX_PAYLOAD_ENTRY_TYPE_LONGDOUBLE:
      return layout<long double>();
    case NVTX_PAYLOAD_ENTRY_TYPE_INT128:
    case NVTX_PAYLOAD_ENTRY_TYPE_UINT128:
    case NVTX_PAYLOAD_ENTRY_TYPE_FLOAT128:
      return {16, 16};
    case NVTX_PAYLOAD_ENTRY_TYPE_LONGLONG:
    case NVTX_PAYLOAD_ENTRY_TYPE_ULONGLONG:
    case NVTX_PAYLOAD_ENTRY_TYPE_INT64:
    case NVTX_PAYLOAD_ENTRY_TYPE_UINT64:
    case NVTX_PAYLOAD_ENTRY_TYPE_DOUBLE:
    case NVTX_PAYLOAD_ENTRY_TYPE_FLOAT64:
    case NVTX_PAYLOAD_ENTRY_TYPE_SIZE:
    case NVTX_PAYLOAD_ENTRY_TYPE_ADDRESS:
    case NVTX_PAYLOAD_ENTRY_TYPE_RANGE_ID:
    case NVTX_PAYLOAD_ENTRY_TYPE_SCOPE_ID:
    case NVTX_PAYLOAD_ENTRY_TYPE_PID_UINT64:
    case NVTX_PAYLOAD_ENTRY_TYPE_TID_UINT64:
    case NVTX_PAYLOAD_ENTRY_TYPE_NVTX_REGISTERED_STRING_HANDLE:
      return {8, 8};
    default:
      return {0, 1};
  }
}

bool is_string(uint64_t type) {
  return type >= NVTX_PAYLOAD_ENTRY_TYPE_CSTRING && type <= NVTX_PAYLOAD_ENTRY_TYPE_CSTRING_UTF32;
}

constexpr uint64_t kElsewhere = NVTX_PAYLOAD_ENTRY_FLAG_POINTER | NVTX_PAYLOAD_ENTRY_FLAG_OFFSET_FROM_BASE |
                                NVTX_PAYLOAD_ENTRY_FLAG_OFFSET_FROM_HERE;

// Returns the size and alignment of an entry in a static schema.
Layout layout_of_entry(const nvtxPayloadSchemaEntry_t& entry, const Schema* nested) {
  if (entry.flags & kElsewhere) return {8, 8};
  uint64_t array = NVTX_PAYLOAD_ENTRY_FLAG_ARRAY_TYPE(entry.flags);
  if (is_string(entry.type)) {
    size_t unit = entry.type == NVTX_PAYLOAD_ENTRY_TYPE_CSTRING_UTF16   ? 2
                  : entry.type == NVTX_PAYLOAD_ENTRY_TYPE_CSTRING_UTF32 ? 4
                                                                        : 1;
    bool fixed = array == 0 || array == NVTX_PAYLOAD_ENTRY_FLAG_ARRAY_FIXED_SIZE;
    if (fixed && entry.arrayOrUnionDetail) return {entry.arrayOrUnionDetail * unit, unit};
    return array == 0 ? Layout{8, 8} : Layout{0, unit};
  }
  Layout one = nested ? Layout{nested->bytes, nested->align} : layout_of_type(entry.type);
  if (array == NVTX_PAYLOAD_ENTRY_FLAG_ARRAY_FIXED_SIZE) return {one.bytes * entry.arrayOrUnionDetail, one.align};
  return array == 0 ? one : Layout{0, one.align};  // bytes = 0: only the payload tells the array's length
}

void find_fields(const nvtxPayloadSchemaEntry_t& entry, size_t offset, size_t bytes, const Schema* nested,
                 std::vector<PayloadField>* fields) {
  if (entry.flags & kElsewhere) return;
  bool message = (entry.flags & (3 << 10)) == NVTX_PAYLOAD_ENTRY_FLAG_EVENT_MESSAGE;
  bool plain = NVTX_PAYLOAD_ENTRY_FLAG_ARRAY_TYPE(entry.flags) == 0;
  bool is_narrow = entry.type == NVTX_PAYLOAD_ENTRY_TYPE_CSTRING || entry.type == NVTX_PAYLOAD_ENTRY_TYPE_CSTRING_UTF8;
  if (is_narrow && entry.arrayOrUnionDetail) {
    if (message && bytes) fields->push_back({PayloadField::kInline, true, offset, bytes});
  } else if (!plain) {
    return;
  } else if (is_narrow) {
    fields->push_back({PayloadField::kPointer, message, offset, 8});
  } else if (entry.type == NVTX_PAYLOAD_ENTRY_TYPE_NVTX_REGISTERED_STRING_HANDLE) {
    fields->push_back({PayloadField::kHandle, message, offset, 8});
  } else if (entry.type == NVTX_PAYLOAD_ENTRY_TYPE_CATEGORY) {
    fields->push_back({PayloadField::kCategory, false, offset, 4});
  } else if (entry.type == NVTX_PAYLOAD_ENTRY_TYPE_COLOR_ARGB) {
    fields->push_back({PayloadField::kColor, false, offset, 4});
  } else if (nested && nested->type == NVTX_PAYLOAD_SCHEMA_TYPE_STATIC) {
    for (PayloadField field : nested->fields) {
      field.offset += offset;
      fields->push_back(field);
    }
  }
}

// Larger schemas are refused. More entries mean that the client never set the field with their number. More fields mean
// that nested schemas contain arrays whose lengths multiply.
constexpr size_t kMostEntries = 1 << 16;
constexpr size_t kMostFields = 1 << 12;

}  // namespace

uint64_t register_schema(nvtxDomainHandle_t handle, const nvtxPayloadSchemaAttr_t* attributes) {
  constexpr uint64_t kNeeded = NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_TYPE | NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_ENTRIES |
                               NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_NUM_ENTRIES;
  if (!attributes || (attributes->fieldMask & kNeeded) != kNeeded || !attributes->entries) return 0;
  if (attributes->numEntries > kMostEntries) return 0;
  auto has = [&](uint64_t field) { return (attributes->fieldMask & field) != 0; };
  Domain& domain = Domain::of(handle);
  auto schema = std::make_unique<Schema>();
  schema->nvtx_id = has(NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_SCHEMA_ID) ? attributes->schemaId : 0;
  schema->type = static_cast<uint32_t>(attributes->type);
  if (has(NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_NAME) && attributes->name) schema->name = attributes->name;
  size_t pack = has(NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_ALIGNMENT) ? attributes->packAlign : 0;
  bool is_static = schema->type == NVTX_PAYLOAD_SCHEMA_TYPE_STATIC;
  size_t end = 0;
  for (size_t i = 0; i < attributes->numEntries; ++i) {
    const nvtxPayloadSchemaEntry_t& entry = attributes->entries[i];
    const Schema* nested = domain.schema(entry.type);
    Layout layout = layout_of_entry(entry, nested);
    size_t align = pack ? std::min(pack, layout.align) : layout.align;
    size_t offset = entry.offset;
    // In a static schema, an offset of 0 after the first entry means that the entry follows the one before it.
    if (is_static && i > 0 && !offset) offset = (end + align - 1) / align * align;
    end = offset + layout.bytes;
    schema->align = std::max(schema->align, align);
    schema->bytes = std::max(schema->bytes, end);
    uint64_t type = nested ? nested->id : entry.type;
    auto name = static_cast<uint32_t>(schema->names.size());
    schema->entries.push_back({entry.flags, type, offset, entry.arrayOrUnionDetail, name, 0});
    schema->names.emplace_back(entry.name ? entry.name : "");
    if (is_static) find_fields(entry, offset, layout.bytes, nested, &schema->fields);
    if (schema->fields.size() > kMostFields) return 0;
  }
  schema->bytes = (schema->bytes + schema->align - 1) / schema->align * schema->align;
  if (has(NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_STATIC_SIZE) && attributes->payloadStaticSize) {
    schema->bytes = attributes->payloadStaticSize;
  }
  return domain.add_schema(std::move(schema));
}

uint64_t register_enum(nvtxDomainHandle_t handle, const nvtxPayloadEnumAttr_t* attributes) {
  constexpr uint64_t kNeeded = NVTX_PAYLOAD_ENUM_ATTR_FIELD_ENTRIES | NVTX_PAYLOAD_ENUM_ATTR_FIELD_NUM_ENTRIES |
                               NVTX_PAYLOAD_ENUM_ATTR_FIELD_SIZE;
  if (!attributes || (attributes->fieldMask & kNeeded) != kNeeded || !attributes->entries) return 0;
  if (attributes->numEntries > kMostEntries) return 0;
  auto schema = std::make_unique<Schema>();
  bool has_id = attributes->fieldMask & NVTX_PAYLOAD_ENUM_ATTR_FIELD_SCHEMA_ID;
  schema->nvtx_id = has_id ? attributes->schemaId : 0;
  schema->type = capture::kSchemaEnum;
  // If no integer type has this size, `bytes` becomes 0, which means "not known". `align` is at least 1, because
  // offsets are divided by it.
  size_t size = attributes->sizeOfEnum;
  schema->bytes = size <= 8 && std::has_single_bit(size) ? size : 0;
  schema->align = std::max<size_t>(schema->bytes, 1);
  if ((attributes->fieldMask & NVTX_PAYLOAD_ENUM_ATTR_FIELD_NAME) && attributes->name) schema->name = attributes->name;
  for (size_t i = 0; i < attributes->numEntries; ++i) {
    const nvtxPayloadEnum_t& entry = attributes->entries[i];
    schema->entries.push_back({entry.isFlag != 0, 0, entry.value, 0, static_cast<uint32_t>(i), 0});
    schema->names.emplace_back(entry.name ? entry.name : "");
  }
  return Domain::of(handle).add_schema(std::move(schema));
}

}  // namespace opspan::collectors
