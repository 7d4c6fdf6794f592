// An ITT collector that writes down every call, for tests to read: one line a call, fields separated by tabs:
//
//   thread  call  domain  id  rest
//
// An id is written d1/d2/d3. OPSPAN_RECORDER_DISABLE names a domain to be switched off.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <map>
#include <mutex>
#include <string>

#include "collectors/itt_abi.h"

namespace {

using namespace opspan::itt;

std::mutex g_lock;
std::string g_lines;
std::map<std::string, Domain*> g_domains;
std::map<std::string, StringHandle*> g_strings;

void line(const std::string& rest) {
  std::lock_guard guard(g_lock);
  g_lines += std::to_string(syscall(SYS_gettid)) + "\t" + rest + "\n";
}

std::string show(Id id) {
  char text[80];
  snprintf(text, sizeof(text), "%llu/%llx/%llu", id.d1, id.d2, id.d3);
  return text;
}

std::string show(const char* call, const Domain* domain, Id id) {
  return std::string(call) + "\t" + domain->nameA + "\t" + show(id) + "\t";
}

Domain* create_domain(const char* name) {
  const char* off = getenv("OPSPAN_RECORDER_DISABLE");
  std::lock_guard guard(g_lock);
  Domain*& domain = g_domains[name];
  if (!domain) domain = new Domain{off && !strcmp(off, name) ? 0 : 1, strdup(name), nullptr, 0, nullptr, nullptr};
  return domain;
}

StringHandle* create_string(const char* text) {
  std::lock_guard guard(g_lock);
  StringHandle*& handle = g_strings[text];
  if (!handle) handle = new StringHandle{strdup(text), nullptr, 0, nullptr, nullptr};
  return handle;
}

void task_begin(const Domain* domain, Id id, Id parent, StringHandle* name) {
  line(show("begin", domain, id) + show(parent) + "\t" + name->strA);
}
void task_end(const Domain* domain) { line(std::string("end\t") + domain->nameA); }
void begin_overlapped(const Domain* domain, Id id, Id parent, StringHandle* name) {
  line(show("begin_overlapped", domain, id) + show(parent) + "\t" + name->strA);
}
void end_overlapped(const Domain* domain, Id id) { line(show("end_overlapped", domain, id)); }
void metadata(const Domain* domain, Id id, StringHandle* key, MetadataType type, size_t count, void* data) {
  char text[64] = "?";
  if (type == kS64) snprintf(text, sizeof(text), "s64 %" PRId64, *static_cast<int64_t*>(data));
  if (type == kU64) snprintf(text, sizeof(text), "u64 %" PRIu64, *static_cast<uint64_t*>(data));
  if (type == kDouble) snprintf(text, sizeof(text), "double %g", *static_cast<double*>(data));
  line(show("metadata", domain, id) + key->strA + "\t" + (count == 1 ? text : "not one"));
}
void metadata_text(const Domain* domain, Id id, StringHandle* key, const char* text, size_t length) {
  line(show("metadata", domain, id) + key->strA + "\tstr " + std::string(text, length));
}
void relation(const Domain* domain, Id head, int kind, Id tail) {
  line(show("relation", domain, head) + std::to_string(kind) + "\t" + show(tail));
}
void marker(const Domain* domain, Id id, StringHandle* name, Scope scope) {
  line(show("marker", domain, id) + std::to_string(scope) + "\t" + name->strA);
}
void pause() { line("pause"); }
void resume() { line("resume"); }

const struct {
  const char* name;
  void* function;
} kTaken[] = {
    {"__itt_domain_create", reinterpret_cast<void*>(create_domain)},
    {"__itt_string_handle_create", reinterpret_cast<void*>(create_string)},
    {"__itt_task_begin", reinterpret_cast<void*>(task_begin)},
    {"__itt_task_end", reinterpret_cast<void*>(task_end)},
    {"__itt_task_begin_overlapped", reinterpret_cast<void*>(begin_overlapped)},
    {"__itt_task_end_overlapped", reinterpret_cast<void*>(end_overlapped)},
    {"__itt_metadata_add", reinterpret_cast<void*>(metadata)},
    {"__itt_metadata_str_add", reinterpret_cast<void*>(metadata_text)},
    {"__itt_relation_add", reinterpret_cast<void*>(relation)},
    {"__itt_marker", reinterpret_cast<void*>(marker)},
    {"__itt_pause", reinterpret_cast<void*>(pause)},
    {"__itt_resume", reinterpret_cast<void*>(resume)},
};

}  // namespace

#define EXPORTED extern "C" __attribute__((visibility("default")))

EXPORTED void __itt_api_init(Global* global, int) {
  for (ApiInfo* call = global->api_list_ptr; call && call->name; ++call) {
    for (const auto& taken : kTaken) {
      if (!strcmp(call->name, taken.name)) *call->func_ptr = taken.function;
    }
  }
}

// The lines since the last call. Good until the next one.
EXPORTED const char* recorder_take() {
  static std::string taken;
  std::lock_guard guard(g_lock);
  taken.swap(g_lines);
  g_lines.clear();
  return taken.c_str();
}
