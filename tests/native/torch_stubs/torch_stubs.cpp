// Lets torch's own NVTX emitter run on a torch without CUDA: what it would push to CUDA's NVTX is kept here, as the
// model for what labels="torch" must write; or dropped, to time it. Not a part of opspan: tests and benchmarks load it.
#include <torch/csrc/profiler/stubs/base.h>

#include <mutex>
#include <string>

namespace {

using namespace torch::profiler::impl;

std::mutex g_lock;
std::string g_lines;
bool g_keep = false;

void keep(const char* call, const char* text) {
  if (!g_keep) return;
  std::lock_guard<std::mutex> guard(g_lock);
  g_lines += std::string(call) + "\t" + text + "\n";
}

struct Stubs : ProfilerStubs {
  void record(c10::DeviceIndex*, ProfilerVoidEventStub*, int64_t*) const override {}
  float elapsed(const ProfilerVoidEventStub*, const ProfilerVoidEventStub*) const override { return 0; }
  void mark(const char* name) const override { keep("mark", name); }
  void rangePush(const char* name) const override { keep("push", name); }
  void rangePop() const override { keep("pop", ""); }
  bool enabled() const override { return true; }
  void onEachDevice(std::function<void(int)>) const override {}
  void synchronize() const override {}
};

}  // namespace

#define EXPORTED extern "C" __attribute__((visibility("default")))

EXPORTED void stubs_register(int keep_lines) {
  static Stubs stubs;
  g_keep = keep_lines;
  registerCUDAMethods(&stubs);
}

// The lines since the last call. Good until the next one.
EXPORTED const char* stubs_take() {
  static std::string taken;
  std::lock_guard<std::mutex> guard(g_lock);
  taken.swap(g_lines);
  g_lines.clear();
  return taken.c_str();
}
