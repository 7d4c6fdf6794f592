// Tells opspan's collector of ops as opspan's sinks do, for both protocols in turns.
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <thread>

#include "collectors/direct.h"

using namespace opspan::direct;

namespace {

Op op(const char* name, uint64_t id, int64_t sequence, uint32_t kind, uint32_t forward_tid = 0,
      const char* sizes = "") {
  uint32_t length = static_cast<uint32_t>(__builtin_strlen(sizes));
  return {name, kind, forward_tid, length, sizes, nullptr, sequence, id, 0};
}

Op child(Op of, uint64_t parent) {
  of.parent = parent;
  return of;
}

Op kept(Op of, const void* sizes) {
  of.sizes_handle = sizes;
  return of;
}

}  // namespace

int main() {
  void* library = dlopen(std::getenv("NVTX_INJECTION64_PATH"), RTLD_NOW);
  auto ask = library ? reinterpret_cast<GetCalls>(dlsym(library, kGetCalls)) : nullptr;
  if (!ask) return std::puts("this library has no such function"), 1;
  if (ask(kVersion + 1, kNvtx)) return std::puts("it takes another version's ops"), 1;
  const Calls &nvtx = *ask(kVersion, kNvtx), &itt = *ask(kVersion, kItt);
  void *of_nvtx = nvtx.thread(), *of_itt = itt.thread();
  constexpr uint64_t kUsers = uint64_t{1} << 63;

  nvtx.begin(of_nvtx, op("plain", 7, 3, 1));
  itt.begin(of_itt, child(op("task", 8, 4, 1), 5 | kUsers));
  nvtx.begin(of_nvtx, op("of forward", 9, -1, 2, 812));
  itt.begin(of_itt, child(op("inner task", 10, -1, 1), 8));
  nvtx.end(of_nvtx);
  nvtx.begin(of_nvtx, op("sized", 11, 5, 1, 0, "[[2], []]"));
  itt.begin(of_itt, child(op("task of forward", 12, 3, 2, 812), 10));
  itt.begin(of_itt, kept(op("sized task", 13, 5, 1), itt.keep("[[2], []]")));
  nvtx.begin(of_nvtx, op("both", 14, 6, 2, 812, "[[2], []]"));
  nvtx.begin(of_nvtx, op("far", uint64_t{1} << 32, int64_t{1} << 32, 1));
  itt.begin(of_itt, child(op("task of far", 15, 7, 1), uint64_t{1} << 32));
  for (int i = 0; i < 5; ++i) itt.end(of_itt);
  for (int i = 0; i < 5; ++i) nvtx.end(of_nvtx);  // one more than is open
  itt.end(of_itt);
  std::thread([&] {
    nvtx.begin(nvtx.thread(), op("elsewhere", 16, 8, 1));
    nvtx.end(nvtx.thread());
  }).join();
}
