// Writes the rows of a frame as items of a JSON list: each an object, with a member for each column that is not null
// there.
//
//   {"name":"aten::mm","ts":12.345,"args":{"bytes":4096}},
//   {"name":"no args","ts":13.000,"args":{}}
//
// A struct is an object again, a duration is its microseconds, binary is JSON as it stands, and a text is a string. A
// text under the key "..." must be an object, whose members are added here, except for members with the key of another
// column, even if that column is null. A text that is not an object adds none.

#include "columns/guarded.h"
#include "columns/interface.h"
#include "columns/json_members.h"

namespace opspan::columns {
namespace {

class JsonItems {
 public:
  JsonItems(ArrowArrayStream* rows, bool is_first) : rows_(rows), is_first_(is_first) {
    if (rows_.rows() > 0) members_ = members_of({rows_.schema(), rows_.batch(), 0}, rows_.rows());
  }

  // Returns as many items as fit into a room of memory, which is written again and again, so that the processor has it
  // at hand. A longer item is returned whole.
  std::string_view next() {
    constexpr size_t kRoom = 256 << 10, kMostItems = 16 << 10;  // bytes, and the part of them that most items fit in
    char* to = text_.room(text_.begin(), kRoom);
    for (; row_ < rows_.rows() && text_.size(to) < kRoom - kMostItems; ++row_) {
      if (!is_first_) to = text_.add(to, ",\n");
      is_first_ = false;
      to = write_object(members_, row_, to, text_);
    }
    return {text_.begin(), text_.size(to)};
  }

 private:
  Input rows_;
  Members members_;
  Text text_;
  size_t row_ = 0;
  bool is_first_;
};

}  // namespace
}  // namespace opspan::columns

using opspan::columns::JsonItems;

extern "C" {

__attribute__((visibility("default"))) void* opspan_json_items(ArrowArrayStream* rows, int is_first, char* error,
                                                               size_t error_size) {
  JsonItems* items = nullptr;
  opspan::columns::guarded([&] { items = new JsonItems(rows, is_first != 0); }, error, error_size);
  return items;
}

__attribute__((visibility("default"))) int64_t opspan_json_items_next(void* items, const char** bytes, char* error,
                                                                      size_t error_size) {
  std::string_view text;
  auto next = [&] { text = static_cast<JsonItems*>(items)->next(); };
  if (opspan::columns::guarded(next, error, error_size) != 0) return -1;
  *bytes = text.data();
  return static_cast<int64_t>(text.size());
}

__attribute__((visibility("default"))) void opspan_json_items_end(void* items) {
  delete static_cast<JsonItems*>(items);
}
}
