// Which op made a tensor, in torch's own way: by the tensor's address, the last op that put one out there. Addresses
// are used again and entries never go, so it is a hint at best; it is here to write torch's text byte for byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace opspan::tensor_sources {

void forget_all();
void remember(uint64_t op_id, const uintptr_t* outputs, size_t count);
// `, input_op_ids = [(7,0), (0,-1)]`; nothing when there are none.
void append(std::string& out, const uintptr_t* tensors, size_t count);

}  // namespace opspan::tensor_sources
