// The rows of a frame as items of a JSON list: each an object, with a member for each column that is not null there.
//
//   {"name":"aten::mm","ts":12.345,"args":{"bytes":4096}},
//   {"name":"no args","ts":13.000,"args":{}}
//
// A struct is an object again, a duration is its microseconds, binary is JSON as it stands, and a text is a string. A
// text under the key "..." is an object whose members stand here themselves, but for those whose keys are those of
// other columns here, be they null; what is no object has none.

#include <array>
#include <charconv>
#include <cmath>
#include <concepts>
#include <unordered_set>

#include "columns/columns.h"
#include "columns/interface.h"
#include "columns/json.h"
#include "columns/rows.h"

namespace opspan::columns {
namespace {

// A column under its key: `,"key":value`, or nothing where it is null.
struct Member {
  Member() = default;
  Member(const Member&) = delete;
  Member& operator=(const Member&) = delete;
  virtual ~Member() = default;
  virtual void write(size_t row, Text& out) = 0;
};
using Members = std::vector<std::unique_ptr<Member>>;

void write_object(const Members& members, size_t row, Text& out) {
  const size_t begin = out.size();
  for (const auto& member : members) member->write(row, out);
  if (out.size() == begin) out.add("{");
  out[begin] = '{';  // the comma of the first member
  out.add("}");
}

constexpr size_t kLongestNumber = 32;

char* number(std::integral auto value, char* to) { return std::to_chars(to, to + kLongestNumber, value).ptr; }

char* number(double value, char* to) {
  if (std::isfinite(value)) return std::to_chars(to, to + kLongestNumber, value).ptr;
  // JSON knows none of these: they are texts.
  return Short(std::isnan(value) ? "\"NaN\"" : value < 0 ? "\"-inf\"" : "\"inf\"").copy_to(to);
}

struct Duration {
  int64_t ns;
};

char* number(Duration value, char* to) {  // as microseconds, exactly
  const uint64_t ns = value.ns < 0 ? 0 - static_cast<uint64_t>(value.ns) : static_cast<uint64_t>(value.ns);
  if (value.ns < 0) *to++ = '-';
  to = number(ns / 1000, to);
  const auto rest = static_cast<unsigned>(ns % 1000);
  *to++ = '.';
  for (const unsigned unit : {100u, 10u, 1u}) *to++ = static_cast<char>('0' + rest / unit % 10);
  return to;
}

template <class T>
struct Number : Member {
  Number(std::string_view name, Values<T> column) : key(name), values(column) {}
  void write(size_t row, Text& out) override {
    if (!values.null(row)) out.wrote(number(values[row], key.copy_to(out.room(key.size() + kLongestNumber))));
  }
  Short key;
  Values<T> values;
};

struct Raw : Member {
  Raw(std::string_view name, Texts column) : key(name), texts(column) {}
  void write(size_t row, Text& out) override {
    if (texts.null(row)) return;
    out.add(key);
    out.add(texts[row]);
  }
  Short key;
  Texts texts;
};

// Texts, which mostly are there many times. Views of one text are mostly equal, so that few are escaped.
struct String : Member {
  String(std::string_view name, Texts column) : key(name), texts(column) {}
  void write(size_t row, Text& out) override {
    if (texts.null(row)) return;
    const auto view = std::bit_cast<std::array<uint64_t, 2>>(texts.views[row]);
    Known& slot = known[(view[0] ^ std::rotl(view[1], 32)) * 0x9e3779b97f4a7c15u >> 58];
    if (!slot.is_set || slot.view != view) {
      member.assign(key);
      quote(texts[row], member);
      if (member.size() > kLongestKept) return out.add(std::string_view(member));
      slot.is_set = true;
      slot.view = view;
      slot.member.set(member);
    }
    out.add(slot.member);
  }

  static constexpr size_t kLongestKept = 1024;
  struct Known {
    bool is_set = false;
    std::array<uint64_t, 2> view{};
    Short member;
  };
  std::string key, member;
  Texts texts;
  std::array<Known, 64> known;
};

using Keys = std::unordered_set<std::string_view>;

struct Spread : Member {
  Spread(Texts column, Keys keys) : texts(column), others(std::move(keys)) {}
  void write(size_t row, Text& out) override {
    if (texts.null(row)) return;
    const size_t from = out.size();
    try {
      members(Json(texts[row]), out);
    } catch (Bad) {
      out.cut(from);
    } catch (Cut) {
      out.cut(from);
    }
  }
  void members(Json json, Text& out) {
    json.expect('{');
    seen.clear();
    for (bool first = true; json.more('}', first); first = false) {
      const std::string_view key = Json::text(json.string(), room);
      member.assign(",");
      quote(key, member);
      member += ':';
      const bool is_new = !others.contains(key) && seen.emplace(key).second;
      json.expect(':');
      json.copy_value(member);
      if (is_new) out.add(std::string_view(member));
    }
  }
  Texts texts;
  Keys others;
  std::unordered_set<std::string> seen;  // a key that stands twice
  std::string member, room;
};

struct Object : Member {
  Object(std::string_view name, Nulls nulls, Members inner) : key(name), null(nulls), members(std::move(inner)) {}
  void write(size_t row, Text& out) override {
    if (null(row)) return;
    out.add(key);
    write_object(members, row, out);
  }
  Short key;
  Nulls null;
  Members members;
};

// --- which column is which

std::unique_ptr<Member> member_of(const Column& column);

Members members_of(const Column& parent) {
  Members members;
  Keys keys;
  for (int64_t at = 0; at < parent.schema.n_children; ++at) keys.insert(parent.schema.children[at]->name);
  for (int64_t at = 0; at < parent.schema.n_children; ++at) {
    const Column column{*parent.schema.children[at], *parent.array.children[at], parent.from};
    const bool is_spread = column.schema.name == std::string_view("...");
    if (is_spread && column.schema.format != std::string_view("vu")) throw BadInput("only texts can be spread");
    members.push_back(is_spread ? std::make_unique<Spread>(column.texts(), keys) : member_of(column));
  }
  return members;
}

std::unique_ptr<Member> member_of(const Column& column) {
  const std::string_view format = column.schema.dictionary == nullptr ? column.schema.format : "a dictionary";
  std::string key = ",";
  quote(column.schema.name, key);
  key += ':';
  if (format == "+s") return std::make_unique<Object>(key, column.nulls(), members_of(column));
  if (format == "vu") return std::make_unique<String>(key, column.texts());
  if (format == "vz") return std::make_unique<Raw>(key, column.texts());
  if (format == "tDn") return std::make_unique<Number<Duration>>(key, column.values<Duration>());
  if (format == "i") return std::make_unique<Number<int32_t>>(key, column.values<int32_t>());
  if (format == "l") return std::make_unique<Number<int64_t>>(key, column.values<int64_t>());
  if (format == "I") return std::make_unique<Number<uint32_t>>(key, column.values<uint32_t>());
  if (format == "L") return std::make_unique<Number<uint64_t>>(key, column.values<uint64_t>());
  if (format == "g") return std::make_unique<Number<double>>(key, column.values<double>());
  throw BadInput(std::string("column ") + column.schema.name + " has Arrow format " + std::string(format) +
                 ", which has no JSON here");
}

constexpr size_t kFirst = 1024;  // rows

}  // namespace

Output json_items(const Input& frame, int64_t before) {
  Text text;
  if (frame.rows() > 0) {
    const Members members = members_of({frame.schema(), frame.batch(), 0});
    for (size_t row = 0; row < frame.rows(); ++row) {
      // As much as the others will take if they are like these, once, instead of twice as much again and again.
      if (row == kFirst) text.room(text.size() / kFirst * (frame.rows() - kFirst) * 9 / 8);
      if (row > 0 || before > 0) text.add(",\n");
      write_object(members, row, text);
    }
  }
  Output out(text.size());
  out.add("bytes", text.take());
  return out;
}

}  // namespace opspan::columns
