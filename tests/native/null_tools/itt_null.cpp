// An ITT collector that takes tasks, metadata and relations and does nothing: what is left of a range's cost is the
// caller's. INTEL_LIBITTNOTIFY64 names it. It does intern names, as every collector has to: the same name, the same
// handle, from any thread; by the linked list that ITT's own static part and Intel's reference collector use.
#include <string.h>

#include <mutex>

#include "collectors/itt_abi.h"

namespace {

using namespace opspan::itt;

const char* name_of(const Domain* domain) { return domain->nameA; }
const char* name_of(const StringHandle* handle) { return handle->strA; }

Domain* make_domain(const char* name) { return new Domain{1, name, nullptr, 0, nullptr, nullptr}; }
StringHandle* make_string(const char* name) { return new StringHandle{name, nullptr, 0, nullptr, nullptr}; }

template <class Named, Named* (*make)(const char*)>
Named* intern(const char* name) {
  static std::mutex lock;
  static Named* first = nullptr;
  std::lock_guard guard(lock);
  Named** next = &first;
  for (; *next; next = &(*next)->next) {
    if (!strcmp(name_of(*next), name)) return *next;
  }
  return *next = make(strdup(name));
}

// Whatever the arguments: the caller takes them off the stack.
void nothing() {}

constexpr const char* kTaken[] = {
    "__itt_task_begin",   "__itt_task_end",         "__itt_task_begin_overlapped", "__itt_task_end_overlapped",
    "__itt_metadata_add", "__itt_metadata_str_add", "__itt_relation_add",          "__itt_marker",
};

}  // namespace

extern "C" __attribute__((visibility("default"))) void __itt_api_init(Global* global, int) {
  for (ApiInfo* call = global->api_list_ptr; call && call->name; ++call) {
    for (const char* taken : kTaken) {
      if (!strcmp(call->name, taken)) *call->func_ptr = reinterpret_cast<void*>(nothing);
    }
    if (!strcmp(call->name, "__itt_domain_create"))
      *call->func_ptr = reinterpret_cast<void*>(intern<Domain, make_domain>);
    if (!strcmp(call->name, "__itt_string_handle_create"))
      *call->func_ptr = reinterpret_cast<void*>(intern<StringHandle, make_string>);
  }
}
