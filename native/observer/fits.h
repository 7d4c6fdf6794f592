// Checks that the torch that is loaded has the RecordFunction that this observer was compiled for. An observer that
// came with opspan was compiled on another machine.
#pragma once

#include <ATen/record_function.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

namespace opspan {

inline constexpr char kProbe[] = "opspan::probe";
inline constexpr int64_t kProbeSequence = 42;
inline thread_local bool t_probe_is_right = false;

// Reads numbers only: in another layout, a pointer would point anywhere. name() is a function of torch's library.
inline std::unique_ptr<at::ObserverContext> look_at_probe(const at::RecordFunction& fn) {
  t_probe_is_right = fn.scope() == at::RecordScope::USER_SCOPE && fn.seqNr() == kProbeSequence && fn.handle() != 0 &&
                     fn.threadId() == at::RecordFunction::currentThreadId() && !std::strcmp(fn.name(), kProbe);
  return nullptr;
}

// Begins and ends a range that only look_at_probe sees. Torch's library makes it, so it is laid out as torch has it.
// Returns whether its fields are where this observer reads them, and whether no byte was written behind the size that
// this observer knows.
inline bool fits() {
  constexpr size_t kSize = sizeof(at::RecordFunction);
  struct alignas(std::max_align_t) {
    std::array<unsigned char, kSize + 4096> bytes;
  } memory;
  constexpr unsigned char kUnused = 0xa5;
  memory.bytes.fill(kUnused);
  at::StepCallbacks step(at::RecordFunction::currentThreadId(), at::RecordScope::USER_SCOPE);
  step.callbacks_.push_back({look_at_probe, nullptr});
  step.needs_ids_ = true;
  t_probe_is_right = false;
  auto* fn = new (memory.bytes.data()) at::RecordFunction(std::move(step));
  fn->before(&kProbe[0], kProbeSequence);
  fn->~RecordFunction();
  return t_probe_is_right && std::all_of(memory.bytes.begin() + kSize, memory.bytes.end(),
                                         [](unsigned char byte) { return byte == kUnused; });
}

}  // namespace opspan
