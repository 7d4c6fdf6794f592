// Finds the op that made a tensor, in the same way as torch: the last op that had an output at the tensor's address.
// Addresses are used again and entries are never removed, so the result is only a hint. It is needed because some
// labels must be exactly the text that torch writes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace opspan::tensor_sources {

void forget_all();
void remember(uint64_t op_id, const uintptr_t* outputs, size_t count);
// Appends `, input_op_ids = [(7,0), (0,-1)]`, or nothing if there are no tensors.
void append(std::string& out, const uintptr_t* tensors, size_t count);

}  // namespace opspan::tensor_sources
