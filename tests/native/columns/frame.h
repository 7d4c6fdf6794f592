// A frame of a stress program's own memory as the stream that native calls take.
#pragma once

#include <cstring>
#include <vector>

#include "columns/arrow.h"

namespace opspan::columns::stress {

struct Column {
  const char* name;
  const char* format;
  std::vector<const void*> buffers;
};

struct Frame {
  std::vector<Column> columns;
  int64_t rows;
  std::vector<ArrowSchema> schemas{};
  std::vector<ArrowSchema*> schema_pointers{};
  std::vector<ArrowArray> arrays{};
  std::vector<ArrowArray*> array_pointers{};
  bool is_given = false;

  ArrowArrayStream stream() {
    return {
        [](ArrowArrayStream* self, ArrowSchema* out) { return static_cast<Frame*>(self->private_data)->schema(out); },
        [](ArrowArrayStream* self, ArrowArray* out) { return static_cast<Frame*>(self->private_data)->next(out); },
        [](ArrowArrayStream*) -> const char* { return nullptr; }, nullptr, this};
  }
  int schema(ArrowSchema* out) {
    for (const Column& column : columns) {
      schemas.push_back({column.format, column.name, nullptr, 2, 0, nullptr, nullptr, [](ArrowSchema*) {}, nullptr});
    }
    for (ArrowSchema& one : schemas) schema_pointers.push_back(&one);
    *out = {"+s",
            "",
            nullptr,
            0,
            static_cast<int64_t>(schemas.size()),
            schema_pointers.data(),
            nullptr,
            [](ArrowSchema* self) { self->release = nullptr; },
            nullptr};
    return 0;
  }
  int next(ArrowArray* out) {
    *out = {};
    if (is_given || rows == 0) return 0;
    is_given = true;
    for (Column& column : columns) {
      const auto count = static_cast<int64_t>(column.buffers.size());
      arrays.push_back({rows, 0, 0, count, 0, column.buffers.data(), nullptr, nullptr, [](ArrowArray*) {}, nullptr});
    }
    for (ArrowArray& one : arrays) array_pointers.push_back(&one);
    static const void* none[] = {nullptr};
    *out = {rows,
            0,
            0,
            1,
            static_cast<int64_t>(arrays.size()),
            none,
            array_pointers.data(),
            nullptr,
            [](ArrowArray* self) { self->release = nullptr; },
            nullptr};
    return 0;
  }
};

inline Texts::View view(const char* text) {
  Texts::View made{};
  made.length = static_cast<int32_t>(std::strlen(text));
  std::memcpy(reinterpret_cast<char*>(&made) + 4, text, std::strlen(text));
  return made;
}

}  // namespace opspan::columns::stress
