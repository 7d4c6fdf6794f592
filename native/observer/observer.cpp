// Hands torch's RecordFunction callbacks to the sinks. Only this code includes ATen. It is compiled on the user's
// machine, against the torch that is installed (2.4 or later), so it uses only what all these versions have.
//
// Torch fixes the callbacks of a range when it makes the RecordFunction, so every begin has its end, even if the sink
// was detached in between. Data that a sink does not want is not collected.
//
// Compile with NDEBUG if torch was compiled with it, as releases are: without NDEBUG, RecordFunction has one more
// member.
#include "observer.h"

#include <ATen/record_function.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>
#include <mutex>
#include <utility>

#include "fast_ranges.h"
#include "fits.h"
#include "inputs.h"
#include "keywords.h"
#include "kineto.h"
#include "memory.h"
#include "other_listeners.h"

namespace {

using opspan::add_inputs;
using opspan::address;
using opspan::Addresses;

constexpr auto kKinds = [] {
  using at::RecordScope;
  // Scopes that are new in a later torch stay unknown.
  std::array<uint8_t, static_cast<size_t>(RecordScope::NUM_SCOPES)> kinds{};
  auto set = [&](RecordScope scope, uint8_t kind) { kinds[static_cast<size_t>(scope)] = kind; };
  set(RecordScope::FUNCTION, OPSPAN_KIND_OP);
  set(RecordScope::BACKWARD_FUNCTION, OPSPAN_KIND_BACKWARD);
  set(RecordScope::TORCHSCRIPT_FUNCTION, OPSPAN_KIND_SCRIPT);
  set(RecordScope::KERNEL_FUNCTION_DTYPE, OPSPAN_KIND_DTYPE);
  set(RecordScope::CUSTOM_CLASS, OPSPAN_KIND_CLASS);
  set(RecordScope::BUILD_FEATURE, OPSPAN_KIND_FEATURE);
  set(RecordScope::LITE_INTERPRETER, OPSPAN_KIND_LITE);
  set(RecordScope::USER_SCOPE, OPSPAN_KIND_USER);
  set(RecordScope::STATIC_RUNTIME_OP, OPSPAN_KIND_STATIC_OP);
  set(RecordScope::STATIC_RUNTIME_MODEL, OPSPAN_KIND_STATIC_MODEL);
  return kinds;
}();

bool is_engine_name(const char* name) {
  for (const char* letter = OPSPAN_ENGINE; *letter; ++letter, ++name) {
    if (*name != *letter) return false;
  }
  return true;
}

uint32_t kind_of(at::RecordScope scope, const char* name) {
  const auto number = static_cast<size_t>(scope);
  const uint32_t kind = number < kKinds.size() ? kKinds[number] : OPSPAN_KIND_UNKNOWN;
  // For nearly every name, its first two letters show that it cannot be one of these.
  const bool may_be = kind == OPSPAN_KIND_OP && name[0] == 'a' && name[1] == 'u';
  return may_be && is_engine_name(name) ? OPSPAN_KIND_ENGINE : kind;
}

// The data that a begin or an end needs, in one cache line.
struct alignas(64) Slot {
  opspan_sink sink;
  std::atomic<const opspan_frames*> frames;
  std::atomic<bool> overloads;
};
Slot g_slots[OPSPAN_SINK_COUNT];

// Fills in each field by itself, because clearing the struct first would take as long as the rest of this function.
void describe(const at::RecordFunction& fn, opspan_op& op) {
  op.name = fn.name();
  op.overload_length = 0;
  op.kind = kind_of(fn.scope(), op.name);
  op.inputs_count = 0;
  op.inputs = op.values = nullptr;
  op.type_names = nullptr;
  op.values_count = 0;
  op.python = nullptr;
  op.instruction = 0;
  op.stacks = nullptr;
  op.sequence = fn.seqNr();
  op.op_id = fn.handle();
  op.thread = fn.threadId();
  op.forward_thread = fn.forwardThreadId();
  op.tensors = nullptr;
  op.tensor_count = 0;
  op.keywords = nullptr;
}

template <int kInputs>
void begin_with(const opspan_sink& sink, const at::RecordFunction& fn, opspan_op& op) {
  if constexpr (kInputs == OPSPAN_INPUTS_NONE) {
    sink.begin(&fn, &op);
  } else {
    opspan::Inputs inputs;
    add_inputs<kInputs == OPSPAN_INPUTS_TENSORS, kInputs == OPSPAN_INPUTS_ALL>(fn.inputs(), inputs);
    op.inputs = inputs.words.data();
    op.inputs_count = static_cast<uint32_t>(inputs.words.count());
    op.type_names = kInputs == OPSPAN_INPUTS_ALL ? opspan::type_names() : nullptr;
    op.values = inputs.values.data();
    op.values_count = inputs.any_value ? inputs.values.count() : 0;
    op.tensors = inputs.addresses.data();
    op.tensor_count = inputs.addresses.count();
    std::string keywords;
    if (kInputs == OPSPAN_INPUTS_ALL && opspan::t_in_fast_range) [[unlikely]] {
      keywords = opspan::json_of(fn.kwinputs());
      if (!keywords.empty()) op.keywords = keywords.c_str();
    }
    sink.begin(&fn, &op);
  }
}

// Appends the overload to the name. The text belongs to the thread, and is valid until the thread's next op begins.
[[gnu::cold]] void add_overload(const at::RecordFunction& fn, opspan_op& op) {
  auto operator_name = fn.operator_name();
  if (!operator_name || operator_name->overload_name.empty()) return;
  thread_local std::string name;
  name.assign(op.name).append(1, '.').append(operator_name->overload_name);
  op.name = name.c_str();
  op.overload_length = operator_name->overload_name.size();
}

template <int kInputs>
void begin_at(int sink, const at::RecordFunction& fn) {
  opspan::note_thread();
  opspan_op op;
  describe(fn, op);
  if (g_slots[sink].overloads.load(std::memory_order_relaxed)) [[unlikely]] {
    add_overload(fn, op);
  }
  if (const opspan_frames* frames = g_slots[sink].frames.load(std::memory_order_relaxed)) {
    op.python = frames->innermost(&op.instruction);
    op.stacks = &frames->stacks;
  }
  begin_with<kInputs>(g_slots[sink].sink, fn, op);
}

template <int kSink, int kInputs>
std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& fn) {
  if (fn.scope() == at::RecordScope::USER_SCOPE && opspan::t_is_silent) [[unlikely]] {
    if (auto* announce = g_slots[kSink].sink.announce) announce(fn.handle());
    return nullptr;
  }
  begin_at<kInputs>(kSink, fn);
  return nullptr;
}

template <int kSink, int kInputs>
void end(const at::RecordFunction& fn, at::ObserverContext*) {
  if constexpr (kInputs == OPSPAN_INPUTS_TENSORS) {
    Addresses outputs;
    for (const c10::IValue& output : fn.outputs()) outputs.add(output.isTensor() ? address(output.toTensor()) : 0);
    g_slots[kSink].sink.end(&fn, fn.handle(), fn.threadId(), outputs.data(), outputs.count());
  } else {
    g_slots[kSink].sink.end(&fn, fn.handle(), fn.threadId(), nullptr, 0);
  }
}

template <int kSink>
at::RecordFunctionCallback callback(int inputs) {
  switch (inputs) {
    case OPSPAN_INPUTS_ALL:
      return at::RecordFunctionCallback(begin<kSink, OPSPAN_INPUTS_ALL>, end<kSink, OPSPAN_INPUTS_ALL>);
    case OPSPAN_INPUTS_TENSORS:
      return at::RecordFunctionCallback(begin<kSink, OPSPAN_INPUTS_TENSORS>, end<kSink, OPSPAN_INPUTS_TENSORS>);
    case OPSPAN_INPUTS_SIZES:
      return at::RecordFunctionCallback(begin<kSink, OPSPAN_INPUTS_SIZES>, end<kSink, OPSPAN_INPUTS_SIZES>);
    default:
      return at::RecordFunctionCallback(begin<kSink, OPSPAN_INPUTS_NONE>, end<kSink, OPSPAN_INPUTS_NONE>);
  }
}

// Makes a callback for each sink, because torch does not tell a callback which sink it is for.
using Callback = at::RecordFunctionCallback (*)(int inputs);
template <int... kSinks>
constexpr std::array<Callback, sizeof...(kSinks)> callbacks(std::integer_sequence<int, kSinks...>) {
  return {callback<kSinks>...};
}
constexpr auto kCallbacks = callbacks(std::make_integer_sequence<int, OPSPAN_SINK_COUNT>());

bool is_ours(at::RecordFunctionCallback::StartCallback start) {
  static const auto starts = [] {
    std::array<at::RecordFunctionCallback::StartCallback, OPSPAN_SINK_COUNT*(OPSPAN_INPUTS_ALL + 1)> all;
    auto* next = all.data();
    for (Callback make : kCallbacks) {
      for (int inputs = OPSPAN_INPUTS_NONE; inputs <= OPSPAN_INPUTS_ALL; ++inputs) *next++ = make(inputs).start();
    }
    return all;
  }();
  return std::find(starts.begin(), starts.end(), start) != starts.end();
}

std::mutex g_control;
std::atomic<uint32_t> g_with_inputs{0};  // bits of the attached sinks that get inputs
constexpr int kEmpty = OPSPAN_SINK_COUNT;
at::CallbackHandle g_attached[OPSPAN_SINK_COUNT + 1];  // INVALID_CALLBACK_HANDLE (0): not attached

int attach(int slot, at::RecordFunctionCallback callback, int inputs) {
  std::lock_guard<std::mutex> guard(g_control);
  if (g_attached[slot] != at::INVALID_CALLBACK_HANDLE) return -EBUSY;
  callback.needsIds(true).needsInputs(inputs != OPSPAN_INPUTS_NONE).needsOutputs(inputs == OPSPAN_INPUTS_TENSORS);
  try {
    g_attached[slot] = at::addGlobalCallback(callback);
  } catch (...) {
    return -ENOMEM;
  }
  if (inputs != OPSPAN_INPUTS_NONE) g_with_inputs |= 1u << slot;
  return 0;
}

void detach(int slot) {
  std::lock_guard<std::mutex> guard(g_control);
  if (g_attached[slot] == at::INVALID_CALLBACK_HANDLE) return;
  try {
    at::removeCallback(g_attached[slot]);
  } catch (...) {
    // The callback is gone already, because somebody has cleared all callbacks.
  }
  g_attached[slot] = at::INVALID_CALLBACK_HANDLE;
  g_with_inputs &= ~(1u << slot);
}

}  // namespace

int opspan_observer_abi(void) { return OPSPAN_OBSERVER_ABI; }

#ifndef OPSPAN_BUILT_FOR
#define OPSPAN_BUILT_FOR ""
#endif
const char* opspan_observer_built_for(void) { return OPSPAN_BUILT_FOR; }

int opspan_observer_fits(void) {
  try {
    return opspan::fits();
  } catch (...) {
    return 0;
  }
}

int opspan_observer_init(const opspan_sink* const sinks[OPSPAN_SINK_COUNT]) {
  for (int i = 0; i < OPSPAN_SINK_COUNT; ++i) {
    if (!sinks || !sinks[i]) return -EINVAL;
    g_slots[i].sink = *sinks[i];
  }
  return 0;
}

int opspan_observer_attach(int sink, int inputs) {
  if (sink < 0 || sink >= OPSPAN_SINK_COUNT || !g_slots[sink].sink.begin) return -EINVAL;
  return attach(sink, kCallbacks[sink](inputs), inputs);
}

void opspan_observer_detach(int sink) {
  if (sink >= 0 && sink < OPSPAN_SINK_COUNT) detach(sink);
}

int opspan_observer_stacks(int sink, const opspan_frames* frames) {
  if (sink < 0 || sink >= OPSPAN_SINK_COUNT) return -EINVAL;
  g_slots[sink].frames.store(frames);
  return 0;
}

int opspan_observer_overloads(int sink, int on) {
  if (sink < 0 || sink >= OPSPAN_SINK_COUNT) return -EINVAL;
  g_slots[sink].overloads.store(on);
  return 0;
}

int opspan_observer_memory(int sink, int on) {
  if (sink < 0 || sink >= OPSPAN_SINK_COUNT || !g_slots[sink].sink.memory) return -EINVAL;
  if (on) return opspan::Memory::instance().start(sink, g_slots[sink].sink.memory);
  opspan::Memory::instance().stop(sink);
  return 0;
}

void opspan_observer_threads(int on) { opspan::tell_kineto(on); }

void* opspan_observer_enter_silent(void* callable) { return opspan::call_silent(callable); }

int opspan_observer_others(void) { return opspan::others_listen(is_ours); }

void* opspan_observer_enter_fast(void* callable) { return opspan::call_fast(callable, g_with_inputs != 0); }

int opspan_observer_empty(int on) {
  detach(kEmpty);
  if (!on) return 0;
  at::RecordFunctionCallback nothing([](const at::RecordFunction&) { return std::unique_ptr<at::ObserverContext>(); },
                                     [](const at::RecordFunction&, at::ObserverContext*) {});
  return attach(kEmpty, nothing, on == 2 ? OPSPAN_INPUTS_SIZES : OPSPAN_INPUTS_NONE);
}
