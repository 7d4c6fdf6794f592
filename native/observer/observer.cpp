// Torch's RecordFunction callbacks -> sinks. The only code that includes ATen: it is compiled on the user's machine,
// against the torch that is installed, from 2.4 on, so it uses what all of those have.
//
// Torch fixes the callbacks of a range when it makes the RecordFunction, so that every begin has its end, also when
// the sink was detached in between. What a sink does not want is not collected.
//
// Compile with NDEBUG when torch was, as released ones are: RecordFunction has a member more without it.
#include "observer.h"

#include <ATen/record_function.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace {

// The stack holds what nearly every op needs; more goes to the heap.
template <class Word, size_t kInline>
class Words {
 public:
  void add(Word word) {
    if (count_ < kInline) {
      inline_[count_++] = word;
      return;
    }
    if (count_ == kInline) more_.assign(inline_, inline_ + kInline);
    more_.push_back(word);
    ++count_;
  }
  void cut(size_t count) {
    count_ = count;
    if (!more_.empty()) more_.resize(count);
  }
  size_t count() const { return count_; }
  const Word* data() const { return count_ > kInline ? more_.data() : inline_; }

 private:
  size_t count_ = 0;
  Word inline_[kInline];
  std::vector<Word> more_;
};

using Sizes = Words<int64_t, 256>;
using Addresses = Words<uintptr_t, 64>;

uintptr_t address(const at::Tensor& tensor) {
  return tensor.defined() ? reinterpret_cast<uintptr_t>(tensor.unsafeGetTensorImpl()) : 0;
}

// Some tensors have no sizes to tell (nested ones), or none yet (traced ones: an unknown dimension becomes -1).
void add_tensor(const at::Tensor& tensor, Sizes& sizes) {
  if (!tensor.defined()) return sizes.add(OPSPAN_SIZES_NONE);
  size_t before = sizes.count();
  try {
    if (tensor.unsafeGetTensorImpl()->has_symbolic_sizes_strides()) {
      auto dimensions = tensor.sym_sizes();
      sizes.add(static_cast<int64_t>(dimensions.size()));
      for (const auto& dimension : dimensions) {
        auto known = dimension.maybe_as_int();
        sizes.add(known ? *known : -1);
      }
    } else {
      auto dimensions = tensor.sizes();
      sizes.add(static_cast<int64_t>(dimensions.size()));
      for (int64_t dimension : dimensions) sizes.add(dimension);
    }
  } catch (...) {
    sizes.cut(before);
    sizes.add(OPSPAN_SIZES_NONE);
  }
}

// As a list of tensors only if it has one: other lists are data, not shapes.
template <bool kTensors>
void add_list(const c10::IValue& list, Sizes& sizes, Addresses& addresses) {
  c10::ArrayRef<c10::IValue> items = list.toListRef();
  bool any = false;
  for (const c10::IValue& item : items) any = any || item.isTensor();
  if (!any) {
    sizes.add(OPSPAN_SIZES_NONE);
    if (kTensors) addresses.add(0);
    return;
  }
  sizes.add(OPSPAN_SIZES_LIST);
  sizes.add(static_cast<int64_t>(items.size()));
  for (const c10::IValue& item : items) {
    if (!item.isTensor()) {
      sizes.add(OPSPAN_SIZES_NONE);
      continue;
    }
    add_tensor(item.toTensor(), sizes);
    if (kTensors) addresses.add(address(item.toTensor()));
  }
}

template <bool kTensors>
void add_inputs(c10::ArrayRef<const c10::IValue> inputs, Sizes& sizes, Addresses& addresses) {
  for (const c10::IValue& input : inputs) {
    if (input.isTensor()) {
      add_tensor(input.toTensor(), sizes);
      if (kTensors) addresses.add(address(input.toTensor()));
    } else if (input.isList()) {
      add_list<kTensors>(input, sizes, addresses);
    } else {
      sizes.add(OPSPAN_SIZES_NONE);
      if (kTensors) addresses.add(0);
    }
  }
}

uint32_t kind_of(at::RecordScope scope, const char* name, size_t length) {
  constexpr char kEngine[] = "autograd::engine::evaluate_function";
  constexpr size_t kEngineLength = sizeof(kEngine) - 1;
  switch (scope) {
    case at::RecordScope::FUNCTION:
      return length < kEngineLength || std::memcmp(name, kEngine, kEngineLength) ? OPSPAN_KIND_OP : OPSPAN_KIND_ENGINE;
    case at::RecordScope::BACKWARD_FUNCTION:
      return OPSPAN_KIND_BACKWARD;
    case at::RecordScope::TORCHSCRIPT_FUNCTION:
      return OPSPAN_KIND_SCRIPT;
    case at::RecordScope::KERNEL_FUNCTION_DTYPE:
      return OPSPAN_KIND_DTYPE;
    case at::RecordScope::CUSTOM_CLASS:
      return OPSPAN_KIND_CLASS;
    case at::RecordScope::BUILD_FEATURE:
      return OPSPAN_KIND_FEATURE;
    case at::RecordScope::LITE_INTERPRETER:
      return OPSPAN_KIND_LITE;
    case at::RecordScope::USER_SCOPE:
      return OPSPAN_KIND_USER;
    case at::RecordScope::STATIC_RUNTIME_OP:
      return OPSPAN_KIND_STATIC_OP;
    case at::RecordScope::STATIC_RUNTIME_MODEL:
      return OPSPAN_KIND_STATIC_MODEL;
    default:  // of a torch to come
      return OPSPAN_KIND_UNKNOWN;
  }
}

opspan_sink g_sinks[OPSPAN_SINK_COUNT];

enum Inputs { kNoInputs, kWithSizes, kWithTensors };

opspan_op describe(const at::RecordFunction& fn) {
  opspan_op op = {};
  op.name = fn.name();
  op.name_length = std::strlen(op.name);
  op.kind = kind_of(fn.scope(), op.name, op.name_length);
  op.sequence = fn.seqNr();
  op.op_id = fn.handle();
  op.thread = fn.threadId();
  op.forward_thread = fn.forwardThreadId();
  return op;
}

template <int kSink, Inputs kInputs>
std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& fn) {
  opspan_op op = describe(fn);
  if constexpr (kInputs != kNoInputs) {
    Sizes sizes;
    Addresses addresses;
    add_inputs<kInputs == kWithTensors>(fn.inputs(), sizes, addresses);
    op.sizes = sizes.data();
    op.sizes_count = static_cast<uint32_t>(sizes.count());
    op.tensors = addresses.data();
    op.tensor_count = addresses.count();
    g_sinks[kSink].begin(&fn, &op);
  } else {
    g_sinks[kSink].begin(&fn, &op);
  }
  return nullptr;
}

template <int kSink, Inputs kInputs>
void end(const at::RecordFunction& fn, at::ObserverContext*) {
  if constexpr (kInputs == kWithTensors) {
    Addresses outputs;
    for (const c10::IValue& output : fn.outputs()) outputs.add(output.isTensor() ? address(output.toTensor()) : 0);
    g_sinks[kSink].end(&fn, fn.handle(), fn.threadId(), outputs.data(), outputs.count());
  } else {
    g_sinks[kSink].end(&fn, fn.handle(), fn.threadId(), nullptr, 0);
  }
}

template <int kSink>
at::RecordFunctionCallback callback(bool shapes, bool tensors) {
  if (tensors) return at::RecordFunctionCallback(begin<kSink, kWithTensors>, end<kSink, kWithTensors>);
  if (shapes) return at::RecordFunctionCallback(begin<kSink, kWithSizes>, end<kSink, kWithSizes>);
  return at::RecordFunctionCallback(begin<kSink, kNoInputs>, end<kSink, kNoInputs>);
}

// A function a sink: torch's callbacks are told nothing of who they are for.
using Callback = at::RecordFunctionCallback (*)(bool shapes, bool tensors);
template <int... kSinks>
constexpr std::array<Callback, sizeof...(kSinks)> callbacks(std::integer_sequence<int, kSinks...>) {
  return {callback<kSinks>...};
}
constexpr auto kCallbacks = callbacks(std::make_integer_sequence<int, OPSPAN_SINK_COUNT>());

std::mutex g_control;
constexpr int kEmpty = OPSPAN_SINK_COUNT;
at::CallbackHandle g_attached[OPSPAN_SINK_COUNT + 1];  // INVALID_CALLBACK_HANDLE = 0: not

int attach(int slot, at::RecordFunctionCallback made, bool shapes, bool tensors) {
  std::lock_guard<std::mutex> guard(g_control);
  if (g_attached[slot] != at::INVALID_CALLBACK_HANDLE) return -EBUSY;
  made.needsIds(true).needsInputs(shapes || tensors).needsOutputs(tensors);
  try {
    g_attached[slot] = at::addGlobalCallback(made);
  } catch (...) {
    return -ENOMEM;
  }
  return 0;
}

void detach(int slot) {
  std::lock_guard<std::mutex> guard(g_control);
  if (g_attached[slot] == at::INVALID_CALLBACK_HANDLE) return;
  try {
    at::removeCallback(g_attached[slot]);
  } catch (...) {
    // Somebody has cleared all callbacks: then it is gone already.
  }
  g_attached[slot] = at::INVALID_CALLBACK_HANDLE;
}

}  // namespace

int opspan_observer_abi(void) { return OPSPAN_OBSERVER_ABI; }

int opspan_observer_init(const opspan_sink* const sinks[OPSPAN_SINK_COUNT]) {
  for (int i = 0; i < OPSPAN_SINK_COUNT; ++i) {
    if (!sinks || !sinks[i]) return -EINVAL;
    g_sinks[i] = *sinks[i];
  }
  return 0;
}

int opspan_observer_attach(int sink, int shapes, int tensors) {
  if (sink < 0 || sink >= OPSPAN_SINK_COUNT || !g_sinks[sink].begin) return -EINVAL;
  return attach(sink, kCallbacks[sink](shapes, tensors), shapes, tensors);
}

void opspan_observer_detach(int sink) {
  if (sink >= 0 && sink < OPSPAN_SINK_COUNT) detach(sink);
}

int opspan_observer_empty(int on) {
  detach(kEmpty);
  if (!on) return 0;
  at::RecordFunctionCallback nothing([](const at::RecordFunction&) { return std::unique_ptr<at::ObserverContext>(); },
                                     [](const at::RecordFunction&, at::ObserverContext*) {});
  return attach(kEmpty, nothing, on == 2, false);
}
