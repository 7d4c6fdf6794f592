// Writes the inputs of an op as arrays of 64-bit words. sinks.h describes these arrays.
#pragma once

#include <ATen/record_function.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <string>

#include "sinks.h"
#include "words.h"

namespace opspan {

using Sizes = Words<int64_t, 256>;
using Addresses = Words<uintptr_t, 64>;

inline uintptr_t address(const at::Tensor& tensor) {
  return tensor.defined() ? reinterpret_cast<uintptr_t>(tensor.unsafeGetTensorImpl()) : 0;
}

// Returns the names that torch.profiler gives to types, by their numbers in sinks.h. They are made once and never
// freed: sinks keep their addresses.
inline const char* const* type_names() {
  static const auto* names = [] {
    constexpr size_t kTypes = static_cast<size_t>(c10::ScalarType::NumOptions);
    auto* texts = new std::array<std::string, kTypes>;
    auto* all = new std::array<const char*, OPSPAN_TYPE_TENSORS + kTypes>{"", "Scalar", "ScalarList", "TensorList"};
    for (size_t i = 0; i < kTypes; ++i) {
      try {
        (*texts)[i] = std::string(c10::scalarTypeToTypeMeta(static_cast<c10::ScalarType>(i)).name());
      } catch (...) {
        // The type Undefined has no name. Numbers that torch no longer uses have no names either.
      }
      (*all)[OPSPAN_TYPE_TENSORS + i] = (*texts)[i].c_str();
    }
    return all;
  }();
  return names->data();
}

inline int64_t type_of(const at::Tensor& tensor) {
  auto type = static_cast<int64_t>(tensor.scalar_type());
  return type < static_cast<int64_t>(c10::ScalarType::NumOptions) ? OPSPAN_TYPE_TENSORS + type : OPSPAN_TYPE_NONE;
}

inline int64_t head(int64_t what, int64_t type, int64_t count = 0, int64_t strides = OPSPAN_STRIDES_NONE) {
  return what | strides << 4 | type << 8 | count << 32;
}

inline bool are_usual(c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  int64_t step = 1;
  for (size_t i = sizes.size(); i--; step *= std::max<int64_t>(sizes[i], 1)) {
    if (strides[i] != step) return false;
  }
  return true;
}

// Reads the sizes and strides that a tensor of a Python class has stored. If it asked the tensor, __torch_dispatch__
// would run the program's code in the middle of an op.
struct StoredLayout {
  const at::TensorImpl& tensor;
  bool is_strided() const { return !tensor.is_sparse() && !tensor.is_sparse_compressed() && !tensor.is_mkldnn(); }
  c10::SymIntArrayRef symbolic_sizes() const { return tensor.sym_sizes_default(); }
  c10::IntArrayRef sizes() const { return tensor.sizes_default(); }
  c10::IntArrayRef strides() const { return tensor.strides_default(); }
};

struct TensorLayout {
  const at::TensorImpl& tensor;
  bool is_strided() const { return tensor.layout() == at::kStrided; }
  c10::SymIntArrayRef symbolic_sizes() const { return tensor.sym_sizes(); }
  c10::IntArrayRef sizes() const { return tensor.sizes(); }
  c10::IntArrayRef strides() const { return tensor.strides(); }
};

// Adds a tensor. Some tensors have no sizes (nested ones), or none yet (traced ones: an unknown dimension becomes -1).
// As in torch.profiler, tensors without sizes have no type, and sparse tensors have no strides.
template <bool kDetails, class Layout>
void add_layout(const at::Tensor& tensor, Layout layout, Sizes& words) {
  size_t before = words.count();
  int64_t type = OPSPAN_TYPE_NONE;
  try {
    if (layout.tensor.has_symbolic_sizes_strides()) {
      auto dimensions = layout.symbolic_sizes();
      words.add(head(OPSPAN_INPUT_TENSOR, type, static_cast<int64_t>(dimensions.size())));
      for (const auto& dimension : dimensions) {
        auto value = dimension.maybe_as_int();
        words.add(value ? *value : -1);
      }
      return;
    }
    if (kDetails && !tensor.is_nested()) type = type_of(tensor);
    auto sizes = layout.sizes();
    auto add_all = [&](int64_t what, c10::IntArrayRef strides = {}) {
      int64_t* room = words.extend(1 + sizes.size() + strides.size());
      *room = head(OPSPAN_INPUT_TENSOR, type, static_cast<int64_t>(sizes.size()), what);
      for (int64_t dimension : sizes) *++room = dimension;
      for (int64_t step : strides) *++room = step;
    };
    if (!kDetails || !layout.is_strided()) return add_all(OPSPAN_STRIDES_NONE);
    auto strides = layout.strides();
    if (are_usual(sizes, strides)) return add_all(OPSPAN_STRIDES_USUAL);
    add_all(OPSPAN_STRIDES_FOLLOW, strides);
  } catch (...) {
    words.cut(before);
    words.add(head(OPSPAN_INPUT_NOTHING, type));
  }
}

template <bool kDetails>
[[gnu::cold, gnu::noinline]] void add_stored(const at::Tensor& tensor, Sizes& words) {
  add_layout<kDetails>(tensor, StoredLayout{*tensor.unsafeGetTensorImpl()}, words);
}

template <bool kDetails>
void add_tensor(const at::Tensor& tensor, Sizes& words) {
  if (!tensor.defined()) return words.add(OPSPAN_INPUT_NOTHING);
  const at::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  if (impl.is_python_dispatch()) [[unlikely]]
    return add_stored<kDetails>(tensor, words);
  add_layout<kDetails>(tensor, TensorLayout{impl}, words);
}

inline int64_t bits(double value) {
  int64_t word;
  std::memcpy(&word, &value, sizeof(word));
  return word;
}

inline bool add_scalar(const c10::IValue& value, Sizes& values) {
  if (value.isInt()) {
    values.add(OPSPAN_VALUE_INT);
    values.add(value.toInt());
  } else if (value.isBool()) {
    values.add(OPSPAN_VALUE_BOOL);
    values.add(value.toBool());
  } else if (value.isDouble()) {
    values.add(OPSPAN_VALUE_REAL);
    values.add(bits(value.toDouble()));
  } else if (value.isComplexDouble()) {
    c10::complex<double> number = value.toComplexDouble();
    values.add(OPSPAN_VALUE_COMPLEX);
    values.add(bits(number.real()));
    values.add(bits(number.imag()));
  } else {
    return false;
  }
  return true;
}

// The most numbers in a list, as in torch.profiler. Longer lists are left out.
inline constexpr size_t kLongestList = 30;

// Adds a list of numbers as torch.profiler does. Returns false if the list holds anything else, or too many numbers.
inline bool add_numbers(c10::ArrayRef<c10::IValue> items, Sizes& values) {
  size_t before = values.count();
  values.add(OPSPAN_VALUE_LIST);
  values.add(static_cast<int64_t>(items.size()));
  bool fits = items.size() <= kLongestList;
  for (size_t i = 0; fits && i < items.size(); ++i) fits = add_scalar(items[i], values);
  if (!fits) {
    values.cut(before);
    values.add(OPSPAN_VALUE_NONE);
  }
  return fits;
}

struct Inputs {
  Sizes words;
  Sizes values;
  Addresses addresses;
  bool any_value = false;
};

// Adds a list. If the list contains a tensor, it is added as a list of tensors. Other lists are data and have no
// shapes.
template <bool kTensors, bool kDetails>
void add_list(const c10::IValue& list, Inputs& to) {
  c10::ArrayRef<c10::IValue> items = list.toListRef();
  bool is_tensor_list = kDetails && list.isTensorList();
  bool has_tensor = is_tensor_list;
  for (const c10::IValue& item : items) has_tensor = has_tensor || item.isTensor();
  bool is_number_list = false;
  if constexpr (kDetails) {
    if (is_tensor_list) to.values.add(OPSPAN_VALUE_NONE);
    if (!is_tensor_list) is_number_list = add_numbers(items, to.values);
    to.any_value = to.any_value || is_number_list;
  }
  if (!has_tensor) {
    to.words.add(head(OPSPAN_INPUT_NOTHING, is_number_list ? OPSPAN_TYPE_SCALARS : OPSPAN_TYPE_NONE));
    if (kTensors) to.addresses.add(0);
    return;
  }
  int64_t type = is_tensor_list ? OPSPAN_TYPE_TENSOR_LIST : OPSPAN_TYPE_NONE;
  to.words.add(head(OPSPAN_INPUT_LIST, type, static_cast<int64_t>(items.size())));
  for (const c10::IValue& item : items) {
    if (!item.isTensor()) {
      to.words.add(OPSPAN_INPUT_NOTHING);
      continue;
    }
    if (is_tensor_list) add_tensor<kDetails>(item.toTensor(), to.words);
    if (!is_tensor_list) add_tensor<false>(item.toTensor(), to.words);
    if (kTensors) to.addresses.add(address(item.toTensor()));
  }
}

template <bool kTensors, bool kDetails>
void add_inputs(c10::ArrayRef<const c10::IValue> inputs, Inputs& to) {
  for (const c10::IValue& input : inputs) {
    if (input.isTensor()) {
      add_tensor<kDetails>(input.toTensor(), to.words);
      if (kTensors) to.addresses.add(address(input.toTensor()));
      if (kDetails) to.values.add(OPSPAN_VALUE_NONE);
    } else if (input.isList()) {
      add_list<kTensors, kDetails>(input, to);
    } else {
      bool is_number = kDetails && add_scalar(input, to.values);
      to.any_value = to.any_value || is_number;
      if (kDetails && !is_number) to.values.add(OPSPAN_VALUE_NONE);
      to.words.add(head(OPSPAN_INPUT_NOTHING, is_number ? OPSPAN_TYPE_SCALAR : OPSPAN_TYPE_NONE));
      if (kTensors) to.addresses.add(0);
    }
  }
}

}  // namespace opspan
