// What the inputs of an op are, as the runs of words of sinks.h.
#pragma once

#include <ATen/record_function.h>

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

// Some tensors have no sizes to tell (nested ones), or none yet (traced ones: an unknown dimension becomes -1).
inline void add_tensor(const at::Tensor& tensor, Sizes& sizes) {
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

// The names that torch.profiler gives to types. Made once, and never freed: sinks keep their addresses.
inline int64_t type_name(const at::Tensor& tensor) {
  static const auto* names = [] {
    auto* made = new std::array<std::string, static_cast<size_t>(c10::ScalarType::NumOptions)>;
    for (size_t i = 0; i < made->size(); ++i) {
      try {
        (*made)[i] = std::string(c10::scalarTypeToTypeMeta(static_cast<c10::ScalarType>(i)).name());
      } catch (...) {
        // Undefined, and numbers that are used no more.
      }
    }
    return made;
  }();
  auto type = static_cast<size_t>(tensor.scalar_type());
  return reinterpret_cast<int64_t>(type < names->size() ? (*names)[type].c_str() : "");
}

// Whether torch.profiler tells anything of it.
inline bool is_plain(const at::Tensor& tensor) {
  return tensor.defined() && !tensor.is_nested() && !tensor.unsafeGetTensorImpl()->has_symbolic_sizes_strides();
}

// Of a tensor that has such: sparse ones have none.
inline void add_strides(const at::Tensor& tensor, Sizes& strides) {
  size_t before = strides.count();
  try {
    if (is_plain(tensor) && tensor.layout() == at::kStrided) {
      auto steps = tensor.strides();
      strides.add(static_cast<int64_t>(steps.size()));
      for (int64_t step : steps) strides.add(step);
      return;
    }
  } catch (...) {
    strides.cut(before);
  }
  strides.add(OPSPAN_SIZES_NONE);
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

inline constexpr char kNone[] = "";
inline constexpr char kScalar[] = "Scalar";
inline constexpr char kScalarList[] = "ScalarList";
inline constexpr char kTensorList[] = "TensorList";
inline constexpr size_t kLongestList = 30;  // torch.profiler's: longer lists of numbers are left out

// Types, strides and values of the inputs, as torch.profiler tells them. Whether any has a value.
inline bool add_details(c10::ArrayRef<const c10::IValue> inputs, Sizes& types, Sizes& strides, Sizes& values) {
  auto add = [&](const char* type) { types.add(reinterpret_cast<int64_t>(type)); };
  bool any_value = false;
  for (const c10::IValue& input : inputs) {
    if (input.isTensor()) {
      const at::Tensor& tensor = input.toTensor();
      types.add(is_plain(tensor) ? type_name(tensor) : reinterpret_cast<int64_t>(kNone));
      add_strides(tensor, strides);
      values.add(OPSPAN_VALUE_NONE);
      continue;
    }
    if (input.isTensorList()) {
      c10::ArrayRef<c10::IValue> items = input.toListRef();
      add(kTensorList);
      values.add(OPSPAN_VALUE_NONE);
      strides.add(OPSPAN_SIZES_LIST);
      strides.add(static_cast<int64_t>(items.size()));
      for (const c10::IValue& item : items) add_strides(item.toTensor(), strides);
      continue;
    }
    strides.add(OPSPAN_SIZES_NONE);
    if (input.isList()) {
      c10::ArrayRef<c10::IValue> items = input.toListRef();
      size_t before = values.count();
      values.add(OPSPAN_VALUE_LIST);
      values.add(static_cast<int64_t>(items.size()));
      bool fits = items.size() <= kLongestList;
      for (size_t i = 0; fits && i < items.size(); ++i) fits = add_scalar(items[i], values);
      add(fits ? kScalarList : kNone);
      if (!fits) {
        values.cut(before);
        values.add(OPSPAN_VALUE_NONE);
      }
      any_value = any_value || fits;
    } else if (add_scalar(input, values)) {
      any_value = true;
      add(kScalar);
    } else {
      add(kNone);
      values.add(OPSPAN_VALUE_NONE);
    }
  }
  return any_value;
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

}  // namespace opspan
