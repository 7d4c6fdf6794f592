// The columns for the events of a Chrome trace, and the code that reads one event into a row of these columns.
#pragma once

#include <deque>
#include <unordered_map>

#include "columns/columns.h"
#include "columns/json.h"
#include "columns/slots.h"

namespace opspan::columns {

// Tells how the values of an arg are read. opspan.formats.chrome has the same numbers.
enum ArgType : uint8_t { kInteger, kReal, kText, kList, kJson, kOne, kCategory };

// A dictionary of texts. It does not copy texts of the file; it stores all other texts.
class Words {
 public:
  uint32_t code(const Json::String& string) {
    if (string.plain) return dictionary_.code(string.raw);
    return own(Json::text(string, room_));
  }
  uint32_t own(std::string_view text) {
    const size_t count = dictionary_.texts().size();
    const uint32_t code = dictionary_.code(text);
    if (code == count) dictionary_.move(code, store_.emplace_back(text));
    return code;
  }
  std::vector<std::string_view> texts() const { return dictionary_.texts(); }

 private:
  Dictionary dictionary_;
  std::deque<std::string> store_;
  std::string room_;
};

// A column of texts. Its codes are the dictionary's codes plus 1, so that 0 is null.
struct TextColumn {
  explicit TextColumn(size_t rows) : codes(zeroed<uint32_t>(rows)) {}
  bool has(size_t row) const { return codes[row] != 0; }
  void set(size_t row, uint32_t code) { codes[row] = code + 1; }
  void clear(size_t row) { codes[row] = 0; }
  void give(const char* name, size_t rows, Output& out) {
    auto plain = uninitialized<uint32_t>(rows);
    for (size_t row = 0; row < rows; ++row) plain[row] = codes[row] - 1;  // 0 (null) becomes kNone
    out.add(name, std::move(plain), words.texts());
  }
  Array<uint32_t> codes;
  Words words;
  // The lists in this column, by their bytes in the file. codes_of_lists has the code of the text for each list.
  Dictionary lists;
  std::vector<uint32_t> codes_of_lists;
};

struct ViewColumn {
  explicit ViewColumn(size_t rows) : views(rows), blocks(std::make_shared<Blocks>()), copies(blocks) {}
  void set(size_t row, std::string_view text) { views.set(row, view_of(copies.add(text))); }
  void clear(size_t row) { views.valid.clear(row); }
  void give(const char* name, Output& out) { out.add(name, std::move(views.views), &views.valid, blocks); }
  Views views;
  std::shared_ptr<Blocks> blocks;
  Copies copies;
};

// A column of values that events have in their args, under one key or several.
struct Arg {
  Arg(std::string_view name, ArgType type, size_t rows);
  void clear(size_t row);
  void give(size_t rows, Output& out);

  std::string name;
  ArgType type;
  std::optional<Numbers> numbers;  // only the members that the type needs are set
  Array<double> reals;
  std::optional<Bits> valid;
  std::optional<TextColumn> texts;
  std::optional<ViewColumn> views;
};

class EventColumns {
 public:
  EventColumns(const Input& wanted, size_t rows);

  // Reads the event that begins at `json` into an empty row. Throws what Json throws. The caller then keeps the values
  // that the row already has, or calls `clear`.
  void read(Json& json, size_t row);
  void clear(size_t row);
  // Returns the offset of the args in the bytes, if reading failed in the args and the event's time and phase are
  // known.
  std::optional<size_t> failed_args(size_t row) const {
    const bool is_known = in_args_ && ts_.valid[row] && phase_.has(row);
    return is_known ? std::optional(args_from_) : std::nullopt;
  }
  // Fills a row with a member of the file's object that is not an event: its name, and its value as JSON.
  void member(size_t row, const Json::String& name, std::string_view value) {
    name_.set(row, name_.words.code(name));
    rest_.set(row, value);
  }
  void give(size_t rows, Output& out);

 private:
  Slot* next(Json& json, Slot& before, bool is_first);
  void value(Json& json, Slot& slot, size_t row);
  void args(Json& json, Slot*& slot, size_t row);
  void arg(Json& json, Slot& slot, size_t row);
  void list(Json& json, TextColumn& column, size_t row);
  void single_integer(Json& json, const Slot& slot, size_t row);
  void category(Json& json, Slot& slot, size_t row);
  void rest(Json& json, const Slot& slot);
  void text(Json& json, Slot& slot, TextColumn& column, size_t row);
  template <class Reading>
  auto number(Json& json, Reading reading, size_t row) -> decltype(reading({}));
  std::optional<int64_t> integer_value(Json& json, size_t row);
  std::optional<int64_t> time(Json& json, size_t row);
  void number_or_text(Json& json, Slot& slot, Numbers& numbers, TextColumn& texts, size_t row);

  TextColumn phase_, category_, name_, pid_text_, tid_text_;
  Numbers pid_, tid_, id_, ts_, dur_;
  ViewColumn rest_;  // the args that have no column, as JSON
  Bits is_odd_;
  std::vector<Arg> args_;
  std::unordered_map<std::string_view, size_t> by_key_;
  // A category that begins with one of these prefixes is read as that prefix.
  std::vector<std::string_view> categories_;
  Slots slots_;
  Slot begin_;
  bool in_args_ = false;
  size_t args_from_ = 0;
  std::string rest_text_, value_text_, room_;
};

}  // namespace opspan::columns
