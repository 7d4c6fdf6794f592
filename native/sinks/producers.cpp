#include "sinks/producers.h"

#include <mutex>
#include <unordered_map>

#include "sinks/text.h"
#include "sinks/threads.h"

namespace opspan::producers {
namespace {

struct Producer {
  uint64_t op_id;
  int64_t output;
};

// On the heap for good, see threads.cpp; under the slow lock. Torch has no lock here, nor any order between threads.
auto& made_by() {
  static auto* made = new std::unordered_map<uintptr_t, Producer>;
  return *made;
}

}  // namespace

void forget_all() {
  std::lock_guard guard(slow_lock());
  made_by().clear();
}

void remember(uint64_t op_id, const uintptr_t* outputs, size_t count) {
  std::lock_guard guard(slow_lock());
  for (size_t i = 0; i < count; ++i) {
    if (outputs[i]) made_by()[outputs[i]] = {op_id, static_cast<int64_t>(i)};
  }
}

void append(std::string& out, const uintptr_t* tensors, size_t count) {
  if (!count) return;
  std::lock_guard guard(slow_lock());
  out += ", input_op_ids = [";
  for (size_t i = 0; i < count; ++i) {
    if (i) out += ", ";
    auto found = tensors[i] ? made_by().find(tensors[i]) : made_by().end();
    Producer producer = found == made_by().end() ? Producer{0, -1} : found->second;
    out += '(';
    text::append_number(out, producer.op_id);
    out += ',';
    text::append_number(out, producer.output);
    out += ')';
  }
  out += ']';
}

}  // namespace opspan::producers
