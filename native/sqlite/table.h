// Reads a table of an SQLite file into columns. docs/formats/sqlite.md says what is read here, and what is left to
// SQLite.
#pragma once

#include <vector>

#include "sqlite/column.h"

namespace opspan::sqlite {

struct Table {
  Page root;
  size_t fields;  // the most fields that a record can have
  size_t threads;
  size_t most_text;  // the most bytes that all texts together may have
};

// Returns the column text_bytes, with one row (the length of all texts and bytes together), and then the wanted
// columns. Columns without any value are left out. Columns with the same value in all rows have one row. If no column
// would have all rows, the last one has all rows. Throws Refusal.
columns::Output read(int descriptor, std::vector<Column> wanted_columns, const Table& table);

}  // namespace opspan::sqlite
