// Reads tables of SQLite files for columns/interface.h.
//
// `wanted` has one row for each column (name, field, kind, default_int, default_text, is_known). `about` has one row
// (root, fields, threads, most_bytes); most_bytes is the most bytes that all texts together may have. If the table
// cannot be read here, the result has only the column `declined`, whose rows are the bytes of the reason. Any other
// result begins with text_bytes (table.h).
#include "columns/interface.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "sqlite/table.h"

namespace opspan::sqlite {
namespace {

using columns::Input;
using columns::Output;

std::vector<Column> columns_of(const Input& wanted) {
  const auto names = wanted.texts("name"), texts = wanted.texts("default_text");
  const auto fields = wanted.values<int32_t>("field");
  const auto kinds = wanted.values<uint8_t>("kind");
  const auto numbers = wanted.values<int64_t>("default_int");
  const auto is_known = wanted.flags("is_known");
  std::vector<Column> all;
  for (size_t at = 0; at < wanted.rows(); ++at) {
    Default default_value{.is_known = is_known[at], .is_null = numbers.null(at) && texts.null(at)};
    if (!numbers.null(at)) default_value.number = numbers[at];
    if (!texts.null(at)) default_value.text = texts[at];
    all.push_back({.name = std::string(names[at]),
                   .field = fields[at],
                   .kind = static_cast<Kind>(kinds[at]),
                   .default_value = std::move(default_value)});
  }
  return all;
}

Table table_of(const Input& about) {
  auto value = [&](const char* name) { return static_cast<size_t>(about.values<int64_t>(name)[0]); };
  if (value("root") > std::numeric_limits<Page>::max()) throw Refusal("a page that is not there");
  return {.root = static_cast<Page>(value("root")),
          .fields = value("fields"),
          .threads = std::max<size_t>(1, value("threads")),
          .most_text = value("most_bytes")};
}

Output declined(const char* why) {
  const std::string_view text = why;
  auto letters = columns::uninitialized<uint8_t>(text.size());
  std::copy(text.begin(), text.end(), letters.get());
  Output out(text.size());
  out.add("declined", std::move(letters));
  return out;
}

}  // namespace
}  // namespace opspan::sqlite

namespace opspan::columns {

Output sqlite(const Input& wanted, const Input& about, int64_t descriptor) {
  try {
    using namespace opspan::sqlite;
    return read(static_cast<int>(descriptor), columns_of(wanted), table_of(about));
  } catch (const opspan::sqlite::Refusal& why) {
    return opspan::sqlite::declined(why.what());
  }
}

}  // namespace opspan::columns
