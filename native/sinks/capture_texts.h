// Texts of the capture sinks: sizes, types, strides, values and stacks. Each distinct text is made once, and written
// once to each file.
#pragma once

#include <algorithm>
#include <cstring>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>

#include "capture/writer.h"
#include "sinks/label_table.h"
#include "sinks/text.h"
#include "sinks/threads.h"

namespace opspan::capture_texts {

// Sizes come as numbers, and the same sizes come again and again. So their text is made once, and its id is looked up
// once for each file.
constexpr uint32_t kMaxTexts = 65536;
struct Texts {
  LabelTable inputs, values, stacks;
};

// The texts of the inputs of an op. One look-up by the inputs finds all three.
struct Inputs {
  capture::Constant sizes, types, strides;
};

enum : uint32_t { kSizes = 1, kInputs = 2, kValues = 3 };  // passed to Log::recall as `what`

[[gnu::noinline]] inline void add_inputs(LabelTable& texts, capture::Log& log, const opspan_op& op,
                                         capture::Event& event) {
  uint32_t what = op.type_names ? kInputs : kSizes;
  auto make = [&] {
    std::string sizes, types, strides;
    text::append_sizes(sizes, op.inputs, op.inputs_count);
    if (op.type_names) {
      text::append_types(types, op.inputs, op.inputs_count, op.type_names);
      text::append_strides(strides, op.inputs, op.inputs_count);
    }
    return new Inputs{capture::Constant(sizes), capture::Constant(types), capture::Constant(strides)};
  };
  auto look_up = [&]() -> capture::Ids {
    auto build = [](std::string&) {};
    auto make_handle = [&](const char*) -> void* { return make(); };
    auto drop = [](void* inputs) { delete static_cast<Inputs*>(inputs); };
    auto* entry = texts.get(Key({}, what, op.inputs, op.inputs_count), kMaxTexts, build, make_handle, drop);
    std::unique_ptr<Inputs> temporary(entry ? nullptr : make());
    Inputs& inputs = entry ? *static_cast<Inputs*>(entry->handle) : *temporary;
    return {log.intern(inputs.sizes), log.intern(inputs.types), log.intern(inputs.strides)};
  };
  capture::Ids ids = log.recall(what, op.inputs, op.inputs_count, look_up);
  event.range.sizes = ids.first;
  if (!op.type_names) return;
  event.flags |= capture::kHasInputs;
  event.range.types = ids.second;
  event.range.strides = ids.third;
}

// Returns the Constant with the text for these words; null if there is no room for more texts.
template <class Build>
capture::Constant* constant(LabelTable& table, const int64_t* words, size_t count, Build&& build) {
  auto make_handle = [](const char* text) -> void* { return new capture::Constant(text); };
  auto drop = [](void* constant) { delete static_cast<capture::Constant*>(constant); };
  auto* entry = table.get(Key({}, 0, words, count), kMaxTexts, build, make_handle, drop);
  return entry ? static_cast<capture::Constant*>(entry->handle) : nullptr;
}

// Returns the id of the text. If `constant` is null because there was no room, makes the text again.
template <class Build>
uint32_t id_of(capture::Constant* constant, capture::Log& log, Thread& here, Build&& build) {
  if (constant) return log.intern(*constant);
  here.text.clear();
  build(here.text);
  return log.intern(here.text);
}

[[gnu::noinline]] inline uint32_t values_id(LabelTable& texts, capture::Log& log, Thread& here, const opspan_op& op) {
  auto build = [&](std::string& out) { text::append_values(out, op.values, op.values_count); };
  auto look_up = [&]() -> capture::Ids {
    return {id_of(constant(texts, op.values, op.values_count, build), log, here, build)};
  };
  return log.recall(kValues, op.values, op.values_count, look_up).first;
}

// Returns true if the C++ function that begins the range also ends it, before it returns. Then the Python functions
// around the range stay the same until it ends. Ranges that Python begins (by record_function, for example) may end
// after these functions have returned.
inline bool is_scoped(const opspan_op& op) {
  constexpr std::string_view kTorchs = "aten::";
  return op.kind == OPSPAN_KIND_ENGINE || op.kind == OPSPAN_KIND_BACKWARD ||
         (op.kind == OPSPAN_KIND_OP && !std::strncmp(op.name, kTorchs.data(), kTorchs.size()));
}

// If this op was called in the same Python functions as the innermost open range, returns the text with these
// functions. Otherwise returns null.
inline capture::Constant* functions_around(const Frames& frames, const opspan_op& op) {
  const Frame* around = frames.top();
  if (!around || !around->has_functions) return nullptr;
  const Functions& functions = around->functions;
  return functions.python == op.python && functions.instruction == op.instruction ? functions.text : nullptr;
}

// Returns the id of the op's stack; 0 if the op has none. `frame` is the op's frame, which is not pushed yet.
[[gnu::noinline]] inline uint32_t stack_id(LabelTable& texts, capture::Log& log, Thread& here, const opspan_op& op,
                                           capture::Constant* around, Frame& frame) {
  int64_t words[OPSPAN_STACK_WORDS];
  size_t count = around ? 0 : op.stacks->words(words, std::size(words));
  if (!around && !count) return 0;
  auto build = [&](std::string& out) {
    out.resize(4096);
    size_t size = op.stacks->text(words, count, out.data(), out.size());
    if (size > out.size()) {
      out.resize(size);
      size = std::min(size, op.stacks->text(words, count, out.data(), size));
    }
    out.resize(size);
  };
  capture::Constant* text = around ? around : constant(texts, words, count, build);
  if (is_scoped(op)) frame.set_functions({op.python, op.instruction, text});
  return id_of(text, log, here, build);
}

}  // namespace opspan::capture_texts
