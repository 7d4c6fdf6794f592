// The text forms of a label, and of the sizes in it. docs/labels.md has the grammar.
//
//   aten::cat, seq = 3, op_id = 7, sizes = [[[2, 4], [2, 4]], []]
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "sinks/sinks.h"
#include "sinks/threads.h"

namespace opspan::text {

void append_number(std::string& out, int64_t value);
void append_number(std::string& out, uint64_t value);

// Appends `[[2, 4], [[2], [3]], []]`: a list for each argument, a list of lists for a list of tensors.
void append_sizes(std::string& out, const int64_t* words, size_t count);

// Appends the strides in the same form: `[[4, 1], [[1], [1]], []]`.
void append_strides(std::string& out, const int64_t* words, size_t count);

// Appends `["float", "Scalar", ""]`.
void append_types(std::string& out, const int64_t* words, size_t count, const char* const* names);

// Appends JSON: `[null, [4, 4], 0.1, false, "nan", "1.0+2.0j"]`. Numbers that JSON cannot hold become texts that Python
// can read.
void append_values(std::string& out, const int64_t* words, size_t count);

// Appends `, sizes = ...` as torch writes it. The tensors of a list are not put into an inner list, and undefined
// tensors of a list are left out. Appends nothing if there is no argument.
void append_torch_sizes(std::string& out, const int64_t* words, size_t count);

// The forward thread in a label. Only the label of a backward op contains it, and only if it is not the main thread, so
// that there are few different names.
struct ForwardThread {
  bool named = false;
  uint32_t tid = 0;  // 0: not known
};

// Returns the forward thread that belongs into a label in text form or in OPSPAN_FORM_PAYLOAD.
inline ForwardThread forward_of(const Thread& here, const opspan_op& op) {
  if (op.kind != OPSPAN_KIND_BACKWARD) return {};
  const uint32_t tid = forward_tid(here, op);
  return {tid != process_id(), tid};
}

// Appends everything that opspan knows about an op, in opspan's own grammar.
void append_label(std::string& out, const opspan_op& op, ForwardThread forward);

// Appends `, fwd_tid = T`.
void append_forward(std::string& out, ForwardThread forward);

// Appends a user's own range: `name[, class = C][, args = A]`.
void append_user_range(std::string& out, const opspan_range& range);

inline std::string_view name_of(const opspan_op& op) { return op.name; }
inline std::string_view name_of(const opspan_range& range) { return {range.name, range.name_length}; }
// Returns the name of the field opspan_range::detail in labels.
inline const char* detail_key(const opspan_range& range) { return range.kind == OPSPAN_KIND_MODULE ? "class" : "args"; }

}  // namespace opspan::text
