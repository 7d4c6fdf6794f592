// A table of an SQLite file as columns. docs/formats/sqlite.md says what is taken here, and what is left to SQLite.
#pragma once

#include <vector>

#include "sqlite/column.h"

namespace opspan::sqlite {

struct Table {
  Page root;
  size_t fields;  // of a record, at the most
  size_t threads;
  size_t most_text;  // bytes
};

// First one row, text_bytes: how long all texts and bytes are together. Then the columns; those that hold nothing are
// left out, and those that hold one value in all rows have one row, but for the last if no other has all rows. Throws
// Declined.
columns::Output read(int descriptor, std::vector<Column> wanted_columns, const Table& table);

}  // namespace opspan::sqlite
