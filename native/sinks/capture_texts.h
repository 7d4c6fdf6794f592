// Texts of the capture sinks: sizes, types, strides, values and stacks, each made and written once.
#pragma once

#include <algorithm>
#include <memory>
#include <string>

#include "capture/writer.h"
#include "sinks/interned.h"
#include "sinks/text.h"
#include "sinks/threads.h"

namespace opspan::capture_texts {

// Sizes come as numbers, again and again the same: their text is written once, and its id looked up once a file.
constexpr uint32_t kMaxTexts = 65536;
struct Texts {
  Interned inputs, values, stacks;
};

// Sizes, types and strides change together, so one look-up finds all three.
struct Inputs {
  capture::Constant sizes, types, strides;
};

template <void (*kAppend)(std::string&, const int64_t*, size_t)>
std::string text_of(const int64_t* words, size_t count) {
  std::string text;
  if (count) kAppend(text, words, count);
  return text;
}

inline void tell_inputs(Interned& texts, capture::Log& log, const opspan_op& op, capture::Event& event) {
  const int64_t* types = op.sizes + op.sizes_count;
  const int64_t* strides = types + op.types_count;
  auto build = [](std::string&) {};
  auto make = [&] {
    return new Inputs{capture::Constant(text_of<text::append_sizes>(op.sizes, op.sizes_count)),
                      capture::Constant(text_of<text::append_types>(types, op.types_count)),
                      capture::Constant(text_of<text::append_sizes>(strides, op.strides_count))};
  };
  auto give = [&](const char*) -> void* { return make(); };
  auto drop = [](void* inputs) { delete static_cast<Inputs*>(inputs); };
  Key key({}, uint64_t{op.types_count} << 32 | op.strides_count, op.sizes,
          size_t{op.sizes_count} + op.types_count + op.strides_count);
  auto* entry = texts.get(key, kMaxTexts, build, give, drop);
  std::unique_ptr<Inputs> once(entry ? nullptr : make());
  Inputs& inputs = entry ? *static_cast<Inputs*>(entry->handle) : *once;
  event.range.sizes = log.intern(inputs.sizes);
  if (!op.types_count) return;
  event.flags |= capture::kHasInputs;
  event.range.types = log.intern(inputs.types);
  event.range.strides = log.intern(inputs.strides);
}

// The text that stands for these words.
template <class Build>
uint32_t interned(Interned& table, capture::Log& log, Thread& here, const int64_t* words, size_t count, Build&& build) {
  auto give = [](const char* text) -> void* { return new capture::Constant(text); };
  auto drop = [](void* constant) { delete static_cast<capture::Constant*>(constant); };
  if (auto* entry = table.get(Key({}, 0, words, count), kMaxTexts, build, give, drop)) {
    return log.intern(*static_cast<capture::Constant*>(entry->handle));
  }
  here.text.clear();
  build(here.text);
  return log.intern(here.text);
}

inline uint32_t values_id(Interned& texts, capture::Log& log, Thread& here, const opspan_op& op) {
  auto build = [&](std::string& out) { text::append_values(out, op.values, op.values_count); };
  return interned(texts, log, here, op.values, op.values_count, build);
}

inline uint32_t stack_id(Interned& texts, capture::Log& log, Thread& here, const opspan_op& op) {
  auto build = [&](std::string& out) {
    out.resize(4096);
    size_t size = op.stack_text(op.stack, op.stack_count, out.data(), out.size());
    if (size > out.size()) {
      out.resize(size);
      size = std::min(size, op.stack_text(op.stack, op.stack_count, out.data(), size));
    }
    out.resize(size);
  };
  return interned(texts, log, here, op.stack, op.stack_count, build);
}

}  // namespace opspan::capture_texts
