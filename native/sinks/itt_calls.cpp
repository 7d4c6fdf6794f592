#include "sinks/itt_calls.h"

#include <dlfcn.h>

#include <mutex>
#include <string_view>
#include <unordered_map>

#include "sinks/threads.h"

namespace opspan::itt {

constinit Calls g_calls;

namespace {

// slow_lock() guards g_library and g_checked. The library is never closed.
void* g_library = nullptr;
std::unordered_map<std::string_view, void*> g_checked;  // the value of each variable when it was last checked

bool is_same_file(void* a, void* b) {
  Dl_info first, second;
  return dladdr(a, &first) && dladdr(b, &second) && first.dli_fbase == second.dli_fbase;
}

template <class Function>
void read(std::atomic<Function*>* pointer, const char* variable) {
  auto* address = static_cast<Function**>(dlsym(g_library, variable));
  pointer->store(address ? *address : nullptr, std::memory_order_relaxed);
}

// Reads a pointer to a collector's function. If no collector is attached, the variable may hold a function of ITT
// itself that only looks for a collector; then the result is null. It takes milliseconds to find out which library a
// function is in, if that library is as large as torch's. So only new values are checked.
template <class Function>
void read_collectors(std::atomic<Function*>* pointer, const char* variable) {
  auto* address = static_cast<Function**>(dlsym(g_library, variable));
  Function* function = address ? *address : nullptr;
  auto [checked, is_new] = g_checked.try_emplace(variable, nullptr);
  if (!is_new && checked->second == reinterpret_cast<void*>(function)) return;
  checked->second = reinterpret_cast<void*>(function);
  pointer->store(function, std::memory_order_relaxed);
  if (function && is_same_file(reinterpret_cast<void*>(function), address)) {
    pointer->store(nullptr, std::memory_order_relaxed);
  }
}

}  // namespace

const char* open(const char* library) {
  void* opened = dlopen(library, RTLD_NOW | RTLD_NOLOAD);
  if (!opened) opened = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (!opened) {
    const char* why = dlerror();
    return why ? why : "the library cannot be opened";
  }
  if (!dlsym(opened, "__itt_domain_create_ptr__3_0")) {
    return "the library exports no ITT (no symbol __itt_domain_create_ptr__3_0)";
  }
  {
    std::lock_guard guard(slow_lock());
    if (opened == g_library) opened = nullptr;
  }
  if (!opened) {
    refresh();
    return nullptr;
  }
  // This call makes ITT look for its collector. Creating a domain or a string would not.
  using Version = const char* (*)();
  auto* version = static_cast<Version*>(dlsym(opened, "__itt_api_version_ptr__3_0"));
  if (version && *version) (*version)();
  {
    std::lock_guard guard(slow_lock());
    g_library = opened;
    g_checked.clear();
  }
  refresh();
  return nullptr;
}

bool refresh() {
  std::lock_guard guard(slow_lock());
  if (!g_library) return listening();
  read(&g_calls.domain_create, "__itt_domain_create_ptr__3_0");
  read(&g_calls.string_handle_create, "__itt_string_handle_create_ptr__3_0");
  read_collectors(&g_calls.task_begin, "__itt_task_begin_ptr__3_0");
  read_collectors(&g_calls.task_end, "__itt_task_end_ptr__3_0");
  read_collectors(&g_calls.task_begin_overlapped, "__itt_task_begin_overlapped_ptr__3_0");
  read_collectors(&g_calls.task_end_overlapped, "__itt_task_end_overlapped_ptr__3_0");
  read_collectors(&g_calls.metadata_add, "__itt_metadata_add_ptr__3_0");
  read_collectors(&g_calls.metadata_str_add, "__itt_metadata_str_add_ptr__3_0");
  read_collectors(&g_calls.relation_add, "__itt_relation_add_ptr__3_0");
  read_collectors(&g_calls.marker, "__itt_marker_ptr__3_0");
  read_collectors(&g_calls.pause, "__itt_pause_ptr__3_0");
  read_collectors(&g_calls.resume, "__itt_resume_ptr__3_0");
  return listening();
}

bool listening() {
  return g_calls.task_begin.load(std::memory_order_relaxed) && g_calls.task_end.load(std::memory_order_relaxed);
}

}  // namespace opspan::itt
