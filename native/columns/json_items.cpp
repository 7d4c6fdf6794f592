// Writes the rows of a frame as items of a JSON list. Each item is an object, with a member for each column that is not
// null in the row.
//
//   {"name":"aten::mm","ts":12.345,"args":{"bytes":4096}},
//   {"name":"no args","ts":13.000,"args":{}}
//
// A struct becomes an object, a duration becomes a number of microseconds, and a text becomes a string. Binary data is
// JSON already and is copied. If a text in the column "..." is a JSON object, its members are added to the row's
// object. A member with the name of another column is left out, even if that column is null. If the text is not an
// object, nothing is added.

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

  // Returns as many items as fit into a buffer. The same buffer is filled again and again, so that it stays in the
  // processor's cache. An item that is longer than the buffer is returned in full.
  std::string_view next() {
    // The size of the buffer, and the most bytes that an item usually needs.
    constexpr size_t kRoom = 256 << 10, kMostItems = 16 << 10;
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
