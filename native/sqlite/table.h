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

// Columns that hold nothing are left out, but for the first if none holds anything. Throws Declined.
columns::Output read(int descriptor, std::vector<Column> wanted_columns, const Table& table);

}  // namespace opspan::sqlite
