// Turns each text of a column into a JSON object with one member, which is named after the column: {"parameter":
// "seq=3"}. null stays null.

#include "columns/columns.h"
#include "columns/interface.h"
#include "columns/json.h"
#include "columns/parallel.h"

namespace opspan::columns {

Output json_objects(const Input& frame, int64_t workers) {
  const size_t rows = frame.rows();
  const char* name = frame.schema().children[0]->name;
  const Texts texts = frame.texts(name);
  Views objects(rows);
  const auto blocks = std::make_shared<Blocks>();
  const auto parts = parts_of<Rows>(rows, workers);
  run_parallel(parts.size(), [&](size_t n) {
    Copies copies(blocks);
    std::string key = "{";
    quote(name, key);
    key += ": \"";
    Array<char> room;
    size_t has_room = 0;
    for (size_t row = parts[n].from; row < parts[n].to; ++row) {
      if (texts.null(row)) continue;
      const std::string_view text = texts[row];
      if (const size_t needed = key.size() + room_escaped(text.size()); needed > has_room) {
        has_room = 2 * needed;
        room = uninitialized<char>(has_room);
        std::memcpy(room.get(), key.data(), key.size());
      }
      char* to = escape(text, room.get() + key.size(), Controls::kShort);
      *to++ = '"';
      *to++ = '}';
      const std::string_view object(room.get(), to);
      if (object.size() > INT32_MAX) throw BadInput("a text of more than 2 GB");
      objects.set(row, view_of(copies.add(object)));
    }
  });
  Output out(rows);
  out.add("json", std::move(objects.views), &objects.valid, blocks);
  return out;
}

}  // namespace opspan::columns
