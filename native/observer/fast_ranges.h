// Lets torch._C._profiler._RecordFunctionFast begin a range while torch's own profiler is off.
//
// Its __enter__ does nothing unless the thread has a profiler's state. So a state that records nothing is set while
// __enter__ runs, and no longer: with a state set, torch.profiler would refuse to start.
#pragma once

#include <c10/util/ThreadLocalDebugInfo.h>
#include <torch/csrc/profiler/orchestration/observer.h>

#include <array>
#include <memory>

// Python's own function. It is declared here, because the observer is also built without Python's headers.
struct _object;
extern "C" _object* PyObject_CallObject(_object* callable, _object* arguments);

namespace opspan {

// True while __enter__ of a _RecordFunctionFast runs. No other range has keyword values.
inline thread_local bool t_in_fast_range = false;

class SilentState : public torch::profiler::impl::ProfilerStateBase {
 public:
  explicit SilentState(bool has_inputs)
      : ProfilerStateBase(torch::profiler::impl::ProfilerConfig(torch::profiler::impl::ProfilerState::CPU,
                                                                /*report_input_shapes=*/has_inputs)) {}
  torch::profiler::impl::ActiveProfilerType profilerType() override {
    return torch::profiler::impl::ActiveProfilerType::NONE;
  }
  void reportMemoryUsage(void*, int64_t, size_t, size_t, c10::Device) override {}
};

// Calls a Python callable and returns its result (a new reference), or null if it raised an exception. As in torch, a
// range has inputs and keyword values only if some session records inputs.
inline void* call_fast(void* callable, bool has_inputs) {
  struct Mark {
    Mark() { t_in_fast_range = true; }
    ~Mark() { t_in_fast_range = false; }
  } mark;
  const auto kState = c10::DebugInfoKind::PROFILER_STATE;
  if (c10::ThreadLocalDebugInfo::get(kState)) return PyObject_CallObject(static_cast<_object*>(callable), nullptr);
  static const auto* states = new std::array<std::shared_ptr<SilentState>, 2>{std::make_shared<SilentState>(false),
                                                                              std::make_shared<SilentState>(true)};
  c10::DebugInfoGuard guard(kState, (*states)[has_inputs]);
  return PyObject_CallObject(static_cast<_object*>(callable), nullptr);
}

}  // namespace opspan
