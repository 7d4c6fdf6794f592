#include "sinks/direct.h"

#include <dlfcn.h>

namespace opspan::direct {

const Calls* find(void* function, Protocol protocol) {
  Dl_info tool, owner;
  if (!function || !dladdr(function, &tool) || !tool.dli_fname) return nullptr;
  void* library = dlopen(tool.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  if (!library) return nullptr;
  void* get_calls = dlsym(library, kGetCalls);
  bool is_same_library = get_calls && dladdr(get_calls, &owner) && owner.dli_fbase == tool.dli_fbase;
  dlclose(library);
  return is_same_library ? reinterpret_cast<GetCalls>(get_calls)(kVersion, protocol) : nullptr;
}

}  // namespace opspan::direct
