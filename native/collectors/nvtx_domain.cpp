#include "collectors/nvtx_domain.h"

#include <algorithm>
#include <unordered_map>

namespace opspan::collectors {
namespace {

constinit Handles<Domain> g_domains;

// The named domains. The registry guards them.
struct Domains {
  std::unordered_map<std::string_view, Domain*> by_name;
  uint32_t count = 2;
};

Domains& domains() {
  static Domains* instance = new Domains;
  return *instance;
}

Domain& unknown_domain() {
  static auto* domain = new Domain(constant("(no such domain)"), 1);
  return *domain;
}

}  // namespace

Domain& Domain::of(nvtxDomainHandle_t handle) {
  static Domain* const default_domain = new Domain(nullptr, 0);
  if (!handle) return *default_domain;
  Domain* domain = g_domains.find(handle);
  return domain ? *domain : unknown_domain();
}

bool Domain::is_ours(const void* handle) { return g_domains.find(handle); }

Domain* Domain::create(std::string_view name) {
  std::lock_guard lock(registry());
  Domains& d = domains();
  if (auto entry = d.by_name.find(name); entry != d.by_name.end()) return entry->second;
  capture::Constant* text = constant_locked(name);
  Domain* domain = g_domains.add(text, d.count);
  if (!domain) return nullptr;
  ++d.count;
  d.by_name.emplace(text->text(), domain);
  return domain;
}

void Domain::describe_all(capture::Log& log) {
  std::lock_guard lock(registry());
  described_.store(capture::epoch(), std::memory_order_relaxed);
  for (const auto& [number, text] : categories_) write_category(log, number, text);
  for (const auto& schema : schemas_) write_schema(log, *schema);
}

void Domain::name_category(uint32_t number, std::string_view text) {
  capture::Log* log = capture::log();
  if (log) describe(*log);
  std::lock_guard lock(registry());
  std::string& category = categories_[number];
  if (category == text) return;
  category = text;
  if (log) write_category(*log, number, category);
}

void Domain::write_category(capture::Log& log, uint32_t number, const std::string& text) const {
  capture::Event event = event_of(capture::Unit::kName, capture::Source::kNvtx);
  event.name = log.intern(text);
  event.name_of.what = 2;
  event.name_of.number = number;
  event.name_of.domain = name(log);
  log.append(event);
}

uint64_t Domain::add_schema(std::unique_ptr<Schema> schema) {
  capture::Log* log = capture::log();
  if (log) describe(*log);
  std::lock_guard lock(registry());
  if (schema->nvtx_id) {
    if (schema_locked(schema->nvtx_id)) return schema->nvtx_id;  // another shared object has registered the schema
  } else {
    // The ids that are chosen here start above NVTX's predefined types. Their lower 32 bits stay below the ids that
    // clients choose.
    constexpr uint64_t kFirst = 1 << 12;
    schema->nvtx_id = NVTX_PAYLOAD_SCHEMA_ID_DYNAMIC_START + kFirst + schemas_.size();
  }
  schema->id = static_cast<uint32_t>(schema->nvtx_id);
  schemas_.push_back(std::move(schema));
  if (log) write_schema(*log, *schemas_.back());
  return schemas_.back()->nvtx_id;
}

const Schema* Domain::schema_locked(uint64_t nvtx_id) const {
  auto entry = std::find_if(schemas_.begin(), schemas_.end(), [&](auto& schema) { return schema->nvtx_id == nvtx_id; });
  return entry == schemas_.end() ? nullptr : entry->get();
}

// Finds a schema. This is called for every event with a payload, nearly always with the same id.
const Schema* Domain::schema(uint64_t nvtx_id) const {
  const Schema* last = last_schema_.load(std::memory_order_acquire);
  if (last && last->nvtx_id == nvtx_id) [[likely]]
    return last;
  std::lock_guard lock(registry());
  const Schema* schema = schema_locked(nvtx_id);
  if (schema) last_schema_.store(schema, std::memory_order_release);
  return schema;
}

void Domain::write_schema(capture::Log& log, const Schema& schema) const {
  capture::Event event = event_of(capture::Unit::kSchema, capture::Source::kNvtx);
  event.name = schema.name.empty() ? 0 : log.intern(schema.name);
  event.schema.schema_id = schema.id;
  event.schema.domain = name(log);
  event.schema.entries = static_cast<uint32_t>(schema.entries.size());
  event.schema.payload_bytes = static_cast<uint32_t>(schema.bytes);
  event.schema.schema_type = schema.type;
  std::vector<capture::SchemaEntry> entries = schema.entries;
  for (capture::SchemaEntry& entry : entries) {
    const std::string& text = schema.names[entry.name];
    entry.name = text.empty() ? 0 : log.intern(text);
  }
  capture::Place place = log.append(event);
  log.blob(place, entries.data(), entries.size() * sizeof(capture::SchemaEntry));
}

}  // namespace opspan::collectors
