// NVTX domains with the categories and schemas that are registered in them.
#pragma once

// Makes NVTX's headers declare only types, because this library is a tool and not a client.
#define NVTX_NO_IMPL
#include <nvtx3/nvToolsExtPayload.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "collectors/collector.h"

namespace opspan::collectors {

// A field of a payload that is not just copied: its value means something only inside this process, or NVTX uses it for
// an attribute of the event (message, category, colour).
struct PayloadField {
  enum What { kHandle, kPointer, kInline, kCategory, kColor };
  What what;
  bool message;
  size_t offset;
  size_t length;  // for kInline: the most bytes of the text
};

struct Schema {
  uint32_t id;  // number of the schema in the file
  uint64_t nvtx_id;
  std::string name;
  uint32_t type;
  size_t bytes = 0;
  size_t align = 1;
  std::vector<capture::SchemaEntry> entries;  // the `name` of an entry is an index into names
  std::vector<std::string> names;
  std::vector<PayloadField> fields;
};

// An NVTX domain. Domains with the same name are one object. It is never freed, because other threads may be using it.
class Domain {
 public:
  Domain(capture::Constant* name, uint32_t number) : index(number), name_(name) {}

  // Returns the domain of a client's handle; the null handle is the default domain. All unknown handles share one extra
  // domain, so that their events are not mixed with those of a known domain.
  static Domain& of(nvtxDomainHandle_t handle);
  // Returns null if there are millions of domains already. As a handle, null means the default domain.
  static Domain* create(std::string_view name);
  static bool is_ours(const void* handle);

  uint32_t name(capture::Log& log) const { return name_ ? log.intern(*name_) : 0; }

  // Writes the categories and schemas that the domain's events refer to, once in each file. The file of a forked
  // process must be readable without its parent's file.
  void describe(capture::Log& log) {
    if (described_.load(std::memory_order_relaxed) != capture::epoch()) [[unlikely]]
      describe_all(log);
  }
  void name_category(uint32_t number, std::string_view text);
  uint64_t add_schema(std::unique_ptr<Schema> schema);
  const Schema* schema_locked(uint64_t nvtx_id) const;
  const Schema* schema(uint64_t nvtx_id) const;

  const uint32_t index;  // number of the domain, counted from 0; index of its stack in Thread::stacks

 private:
  void describe_all(capture::Log& log);
  void write_category(capture::Log& log, uint32_t number, const std::string& text) const;
  void write_schema(capture::Log& log, const Schema& schema) const;

  capture::Constant* const name_;  // null: the default domain
  std::atomic<uint32_t> described_{0};
  std::map<uint32_t, std::string> categories_;
  std::vector<std::unique_ptr<Schema>> schemas_;
  mutable std::atomic<const Schema*> last_schema_{nullptr};
};

}  // namespace opspan::collectors
