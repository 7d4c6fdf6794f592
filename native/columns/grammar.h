// Reads labels, in place and without copies. The grammar is that of opspan.labels; tests compare the two.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace opspan::columns {

struct Label {
  std::string_view name;
  std::optional<int64_t> seq, op_id, forward_tid;
  std::optional<std::string_view> class_name, args, sizes, input_op_ids;
};

Label parse_label(std::string_view text);

// Returns the most likely kind of a range with this name, as a number of opspan.labels.Kind. It is for ranges without a
// class; a range with a class is a module.
inline constexpr uint8_t kModule = 5;
uint8_t kind_of(std::string_view name, bool has_seq);

}  // namespace opspan::columns
