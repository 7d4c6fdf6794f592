// The grammar of a label. This is the native version of opspan.labels, and tests compare the two. It reads in place and
// copies nothing.
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

// Returns the most likely kind for a name, as a number of opspan.labels.Kind. It is for ranges without a class; a range
// with a class is a module's.
inline constexpr uint8_t kModule = 5;
uint8_t kind_of(std::string_view name, bool has_seq);

}  // namespace opspan::columns
