#include "collectors/nvtx_payload.h"

#include <string.h>

namespace opspan::collectors {
namespace {

bool is_pointed_string(uint64_t type) {
  return type == NVTX_PAYLOAD_ENTRY_TYPE_CSTRING || type == NVTX_PAYLOAD_ENTRY_TYPE_CSTRING_UTF8;
}

// Returns a C string inside a payload. It ends at its NUL, or at the end of the payload.
std::string_view inline_text(const char* at, size_t most) { return {at, strnlen(at, most)}; }

uint64_t word_at(const char* at) {
  uint64_t word;
  memcpy(&word, at, sizeof(word));
  return word;
}

// Returns the id of a text, which replaces its handle or pointer in the payload. Handles and pointers mean nothing once
// the process has ended.
uint32_t text_at(capture::Log& log, PayloadField::What what, const char* at) {
  uint64_t word = word_at(at);
  if (!word) return 0;
  if (what == PayloadField::kHandle) {
    capture::Constant* text = g_constants.find(word);
    return text ? log.intern(*text) : 0;
  }
  return log.intern(std::string_view(reinterpret_cast<const char*>(word)));
}

// The result of bytes_of() for a size that cannot be right.
constexpr size_t kInvalid = SIZE_MAX;

size_t bytes_of(const nvtxPayloadData_t& data) {
  if (!data.payload) return 0;
  if (data.size <= kMostBytes) return data.size;
  // SIZE_MAX means "up to the terminator", which is only defined for predefined string types.
  if (data.size != SIZE_MAX || !is_pointed_string(data.schemaId)) return kInvalid;
  return strnlen(static_cast<const char*>(data.payload), kMostBytes - 1) + 1;
}

}  // namespace

void Payloads::apply(capture::Log& log, capture::Event* event) const {
  for (size_t i = 0; i < count_; ++i) {
    const nvtxPayloadData_t& data = first_[i];
    size_t bytes = bytes_of(data);
    if (!bytes || bytes == kInvalid) continue;
    if (!event->range.schema) event->range.schema = static_cast<uint32_t>(data.schemaId);
    const Schema* schema = domain_->schema(data.schemaId);
    if (!schema) continue;
    for (const PayloadField& field : schema->fields) {
      size_t left = field.offset < bytes ? bytes - field.offset : 0;
      auto* at = static_cast<const char*>(data.payload) + (left ? field.offset : 0);
      if (field.what == PayloadField::kCategory && left >= sizeof(uint32_t)) {
        memcpy(&event->range.category, at, sizeof(uint32_t));
      } else if (field.what == PayloadField::kColor && left >= sizeof(uint32_t)) {
        memcpy(&event->range.color, at, sizeof(uint32_t));
        event->flags |= capture::kHasColor;
      } else if (field.message && field.what == PayloadField::kInline) {
        event->name = log.intern(inline_text(at, std::min(left, field.length)));
      } else if (field.message && left >= sizeof(uint64_t)) {
        if (uint32_t id = text_at(log, field.what, at)) event->name = id;
      }
    }
  }
}

void Payloads::write(capture::Log& log, const capture::Place& place) const {
  if (refused_) log.count_lost();
  for (size_t i = 0; place && i < count_; ++i) {
    const nvtxPayloadData_t& data = first_[i];
    size_t bytes = bytes_of(data);
    if (bytes == kInvalid) log.count_lost();
    if (!bytes || bytes == kInvalid) continue;
    auto id = static_cast<uint32_t>(data.schemaId);
    const Schema* schema = domain_->schema(data.schemaId);
    bool handle = data.schemaId == NVTX_PAYLOAD_ENTRY_TYPE_NVTX_REGISTERED_STRING_HANDLE;
    if (!handle && (!schema || schema->fields.empty())) {
      log.blob(place, data.payload, bytes, id);
      continue;
    }
    char small[512];
    std::unique_ptr<char[]> large(bytes > sizeof(small) ? new char[bytes] : nullptr);
    char* copy = large ? large.get() : small;
    memcpy(copy, data.payload, bytes);
    auto replace = [&](PayloadField::What what, size_t offset) {
      if (bytes < sizeof(uint64_t) || offset > bytes - sizeof(uint64_t)) return;
      uint64_t text = text_at(log, what, copy + offset);
      memcpy(copy + offset, &text, sizeof(text));
    };
    if (handle) {
      for (size_t offset = 0; offset < bytes; offset += sizeof(uint64_t)) replace(PayloadField::kHandle, offset);
    } else {
      for (const PayloadField& field : schema->fields) {
        if (field.what == PayloadField::kHandle || field.what == PayloadField::kPointer) {
          replace(field.what, field.offset);
        }
      }
    }
    log.blob(place, copy, bytes, id);
  }
}

}  // namespace opspan::collectors
