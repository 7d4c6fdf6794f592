#include "sinks/tensor_sources.h"

#include <mutex>
#include <unordered_map>

#include "sinks/text.h"
#include "sinks/threads.h"

namespace opspan::tensor_sources {
namespace {

struct Source {
  uint64_t op_id;
  int64_t output;
};

// Returns the table of sources, by address. The table is never freed (threads.cpp says why), and slow_lock() guards it.
// Torch's own table has no lock, and guarantees no order between threads.
auto& by_address() {
  static auto* sources = new std::unordered_map<uintptr_t, Source>;
  return *sources;
}

}  // namespace

void forget_all() {
  std::lock_guard guard(slow_lock());
  by_address().clear();
}

void remember(uint64_t op_id, const uintptr_t* outputs, size_t count) {
  std::lock_guard guard(slow_lock());
  for (size_t i = 0; i < count; ++i) {
    if (outputs[i]) by_address()[outputs[i]] = {op_id, static_cast<int64_t>(i)};
  }
}

void append(std::string& out, const uintptr_t* tensors, size_t count) {
  if (!count) return;
  std::lock_guard guard(slow_lock());
  out += ", input_op_ids = [";
  for (size_t i = 0; i < count; ++i) {
    if (i) out += ", ";
    auto entry = tensors[i] ? by_address().find(tensors[i]) : by_address().end();
    Source source = entry == by_address().end() ? Source{0, -1} : entry->second;
    out += '(';
    text::append_number(out, source.op_id);
    out += ',';
    text::append_number(out, source.output);
    out += ')';
  }
  out += ']';
}

}  // namespace opspan::tensor_sources
