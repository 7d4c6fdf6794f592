// Writes a frame's columns as members of JSON objects, with one object for each row. json_items.cpp says how values are
// written.
#pragma once

#include <memory>
#include <vector>

#include "columns/rows.h"

namespace opspan::columns {

// Writes a column as a member of an object: `,"key":value`. Writes nothing in a row in which the column is null.
struct Member {
  Member() = default;
  Member(const Member&) = delete;
  Member& operator=(const Member&) = delete;
  virtual ~Member() = default;
  virtual char* write(size_t row, char* to, Text& out) = 0;
};
using Members = std::vector<std::unique_ptr<Member>>;

// Returns the members for all columns within `parent`. If a column has the same value in all rows, the text of its
// member is made only once, here.
Members members_of(const Column& parent, size_t rows);

inline char* write_object(const Members& members, size_t row, char* to, Text& out) {
  const size_t begin = out.size(to);
  for (const auto& member : members) to = member->write(row, to, out);
  if (out.size(to) == begin) to = out.add(to, "{");
  out.begin()[begin] = '{';  // replaces the first member's comma
  return out.add(to, "}");
}

}  // namespace opspan::columns
