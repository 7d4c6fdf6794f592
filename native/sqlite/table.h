// Reads a table of an SQLite file into columns. docs/formats/sqlite.md says what is read here, and what is left to
// SQLite.
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

// Returns one row of text_bytes, the length of all texts and bytes together, and then the columns. Columns without any
// value are left out. Columns with the same value in all rows have one row. If no column would have all rows, the last
// one has all rows. Throws Refusal.
columns::Output read(int descriptor, std::vector<Column> wanted_columns, const Table& table);

}  // namespace opspan::sqlite
