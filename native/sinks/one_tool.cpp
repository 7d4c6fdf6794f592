#include "sinks/one_tool.h"

#include <dlfcn.h>

#include <mutex>

#include "sinks/itt_calls.h"
#include "sinks/nvtx_calls.h"
#include "sinks/threads.h"

namespace opspan {
namespace {

// The session lock guards all these variables.
bool g_one_tool = false;
void* g_compared_function = nullptr;
const void* g_compared_domain = nullptr;
uint32_t g_labelling = 0;             // bits of the protocols whose sessions label ops now
uint32_t g_speaker = OPSPAN_TO_NVTX;  // bit of the protocol whose session began to label last

// Finds the library that receives ITT's calls. If that library is opspan's collector, asks it whether it made NVTX's
// domain too.
bool is_one_tool(void* itt_function, const void* nvtx_domain) {
  Dl_info collector, owner;
  if (!itt_function || !nvtx_domain || !dladdr(itt_function, &collector) || !collector.dli_fname) return false;
  void* library = dlopen(collector.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  if (!library) return false;
  auto* made_domain = reinterpret_cast<int (*)(const void*)>(dlsym(library, "opspan_collector_made_domain"));
  bool is_same_library =
      made_domain && dladdr(reinterpret_cast<void*>(made_domain), &owner) && owner.dli_fbase == collector.dli_fbase;
  bool is_one = is_same_library && made_domain(nvtx_domain);
  dlclose(library);
  return is_one;
}

void choose_silent() {
  uint32_t silent = kBothTools & ~g_speaker;
  g_silent_user_ranges.store(g_one_tool ? silent : 0, std::memory_order_relaxed);
  g_silent_ops.store(g_one_tool && g_labelling == kBothTools ? silent : 0, std::memory_order_relaxed);
}

}  // namespace

void compare_tools() {
  auto* function = reinterpret_cast<void*>(itt::g_calls.task_begin.load(std::memory_order_relaxed));
  const void* domain = nvtx::domain();
  if (function == g_compared_function && domain == g_compared_domain) return;
  g_compared_function = function;
  g_compared_domain = domain;
  g_one_tool = is_one_tool(function, domain);
  choose_silent();
}

void set_labelling(int sink, bool on) {
  uint32_t bit = 1u << sink & kBothTools;
  if (!bit) return;
  g_labelling = on ? g_labelling | bit : g_labelling & ~bit;
  if (on) {
    g_speaker = bit;
  } else if (g_labelling != kBothTools) {
    g_speaker = g_labelling ? g_labelling : uint32_t{OPSPAN_TO_NVTX};
  }
  choose_silent();
}

}  // namespace opspan

using namespace opspan;

void opspan_labelling(int sink, int on) {
  std::lock_guard guard(session_lock());
  set_labelling(sink, on);
}

int opspan_one_tool(void) {
  std::lock_guard guard(session_lock());
  compare_tools();
  return g_one_tool;
}
