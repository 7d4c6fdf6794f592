#include "columns/json_members.h"

#include <array>
#include <charconv>
#include <cmath>
#include <concepts>
#include <optional>
#include <unordered_set>

#include "columns/json.h"

namespace opspan::columns {
namespace {

constexpr size_t kLongestNumber = 32;

char* number(std::integral auto value, char* to) { return std::to_chars(to, to + kLongestNumber, value).ptr; }

char* number(double value, char* to) {
  if (std::isfinite(value)) return std::to_chars(to, to + kLongestNumber, value).ptr;
  // JSON has neither infinite numbers nor NaN, so they become texts.
  return ShortText(std::isnan(value) ? "\"NaN\"" : value < 0 ? "\"-inf\"" : "\"inf\"").copy_to(to);
}

struct Duration {
  int64_t ns;
};

constexpr auto kThousandths = [] {  // the texts .000 to .999
  std::array<std::array<char, 4>, 1000> all{};
  for (size_t at = 0; at < all.size(); ++at) {
    auto digit = [&](size_t unit) { return static_cast<char>('0' + at / unit % 10); };
    all[at] = {'.', digit(100), digit(10), digit(1)};
  }
  return all;
}();

char* number(Duration value, char* to) {  // writes a duration in microseconds, without rounding
  const uint64_t ns = value.ns < 0 ? 0 - static_cast<uint64_t>(value.ns) : static_cast<uint64_t>(value.ns);
  if (value.ns < 0) *to++ = '-';
  to = number(ns / 1000, to);
  std::memcpy(to, kThousandths[ns % 1000].data(), 4);
  return to + 4;
}

template <class T>
struct Number : Member {
  Number(std::string_view name, Values<T> column) : key(name), values(column) {}
  char* write(size_t row, char* to, Text& out) override {
    if (values.null(row)) return to;
    return number(values[row], key.copy_to(out.room(to, key.size() + kLongestNumber)));
  }
  ShortText key;
  Values<T> values;
};

// Most integers are ids that count up, so often only the last digit of the previous number changes.
template <std::integral T>
struct Number<T> : Member {
  Number(std::string_view name, Values<T> column) : key(name), values(column) {}
  char* write(size_t row, char* to, Text& out) override {
    if (values.null(row)) return to;
    const T value = values[row];
    const bool counts = value > 1 && value - 1 == before;
    before = value;
    if (counts && is_cached && member.last() != '9') {
      ++member.last();
      return out.add(to, member);
    }
    to = out.room(to, key.size() + kLongestNumber);
    char* end = number(value, key.copy_to(to));
    is_cached = counts;
    if (counts) member.set({to, end});
    return end;
  }
  ShortText key, member;  // if is_cached, `member` is the text of `before`
  Values<T> values;
  T before = 0;
  bool is_cached = false;
};

struct RawMember : Member {
  RawMember(std::string_view name, Texts column) : key(name), texts(column) {}
  char* write(size_t row, char* to, Text& out) override {
    return texts.null(row) ? to : out.add(out.add(to, key), texts[row]);
  }
  ShortText key;
  Texts texts;
};

// Keeps texts as members that are ready to be written. Most texts come many times, and few of them are escaped more
// than once.
template <class Id>
class TextCache {
 public:
  explicit TextCache(std::string_view name) : key_(name) {}
  char* write(const Id& id, size_t hash, std::string_view text, char* to, Text& out) {
    Slot& slot = slots_[hash % kSlots];
    if (slot.id != id) {
      member_.assign(key_);
      quote(text, member_);
      if (member_.size() > kLongestKept) return out.add(to, std::string_view(member_));
      slot.id = id;
      slot.member.set(member_);
    }
    return out.add(to, slot.member);
  }

 private:
  static constexpr size_t kLongestKept = 1024, kSlots = 256;
  struct Slot {
    std::optional<Id> id;
    ShortText member;
  };
  std::string key_, member_;
  std::array<Slot, kSlots> slots_;
};

struct StringMember : Member {
  using View = std::array<uint64_t, 2>;  // equal texts mostly have equal views
  StringMember(std::string_view name, Texts column) : cache(name), texts(column) {}
  char* write(size_t row, char* to, Text& out) override {
    if (texts.null(row)) return to;
    const auto view = std::bit_cast<View>(texts.views[row]);
    const uint64_t hash = (view[0] ^ std::rotl(view[1], 32)) * 0x9e3779b97f4a7c15u >> 32;
    return cache.write(view, hash, texts[row], to, out);
  }
  TextCache<View> cache;
  Texts texts;
};

template <class Code>
struct CodedMember : Member {
  CodedMember(std::string_view name, Values<Code> column, Texts dictionary)
      : cache(name), codes(column), texts(dictionary) {}
  char* write(size_t row, char* to, Text& out) override {
    if (codes.null(row)) return to;
    const Code code = codes[row];
    return cache.write(code, code, texts[code], to, out);
  }
  TextCache<Code> cache;
  Values<Code> codes;
  Texts texts;
};

using Keys = std::unordered_set<std::string_view>;

struct SpreadMember : Member {
  SpreadMember(Texts column, Keys keys) : texts(column), others(std::move(keys)) {}
  char* write(size_t row, char* to, Text& out) override {
    if (texts.null(row)) return to;
    members_text.clear();
    try {
      members(Json(texts[row]));
    } catch (Bad) {
      return to;
    } catch (Cut) {
      return to;
    }
    return out.add(to, std::string_view(members_text));
  }
  void members(Json json) {
    json.expect('{');
    keys_seen.clear();
    for (bool first = true; json.more('}', first); first = false) {
      const std::string_view key = Json::text(json.string(), room);
      const size_t from = members_text.size();
      members_text += ',';
      quote(key, members_text);
      members_text += ':';
      const bool is_new = !others.contains(key) && keys_seen.emplace(key).second;
      json.expect(':');
      json.copy_value(members_text);
      if (!is_new) members_text.resize(from);
    }
  }
  Texts texts;
  Keys others;
  std::unordered_set<std::string> keys_seen;  // keys of the current object so far; a key that comes again is left out
  std::string members_text, room;
};

struct ObjectMember : Member {
  ObjectMember(std::string_view name, Nulls nulls, Members inner) : key(name), null(nulls), members(std::move(inner)) {}
  char* write(size_t row, char* to, Text& out) override {
    return null(row) ? to : write_object(members, row, out.add(to, key), out);
  }
  ShortText key;
  Nulls null;
  Members members;
};

struct ConstantMember : Member {
  char* write(size_t, char* to, Text& out) override { return out.add(to, member); }
  void append(Member& other) {
    Text one;
    char* end = other.write(0, one.begin(), one);
    text.append(one.begin(), one.size(end));
    member.set(text);
  }
  std::string text;
  ShortText member;
};

// --- from columns to members

// Returns true if no row is null and all rows hold the same bytes.
template <class T>
bool is_constant(const Values<T>& values, size_t rows) {
  if (values.null.validity != nullptr) return false;
  const auto* bytes = reinterpret_cast<const char*>(values.data);
  return std::memcmp(bytes, bytes + sizeof(T), (rows - 1) * sizeof(T)) == 0;
}

struct ColumnMember {
  std::unique_ptr<Member> member;
  bool is_constant = false;
};

template <class T>
ColumnMember number_of(std::string_view key, const Column& column, size_t rows) {
  const auto values = column.values<T>();
  return {std::make_unique<Number<T>>(key, values), is_constant(values, rows)};
}

template <class Code>
ColumnMember coded_member(std::string_view key, const Column& column, size_t rows) {
  const auto codes = column.values<Code>();
  const Column texts{*column.schema.dictionary, *column.array.dictionary, 0};
  return {std::make_unique<CodedMember<Code>>(key, codes, texts.texts()), is_constant(codes, rows)};
}

ColumnMember member_of(const Column& column, size_t rows) {
  std::string_view format = column.schema.format;
  std::string key = ",";
  quote(column.schema.name, key);
  key += ':';
  if (const ArrowSchema* texts = column.schema.dictionary) {
    if (texts->format == std::string_view("vu")) {
      if (format == "C") return coded_member<uint8_t>(key, column, rows);
      if (format == "S") return coded_member<uint16_t>(key, column, rows);
      if (format == "I") return coded_member<uint32_t>(key, column, rows);
    }
    format = "a dictionary";
  }
  if (format == "+s") return {std::make_unique<ObjectMember>(key, column.nulls(), members_of(column, rows))};
  if (format == "vu" || format == "vz") {
    const Texts texts = column.texts();
    const bool constant = is_constant(Values<Texts::View>{texts.views, texts.null}, rows);
    if (format == "vz") return {std::make_unique<RawMember>(key, texts), constant};
    return {std::make_unique<StringMember>(key, texts), constant};
  }
  if (format == "tDn") return number_of<Duration>(key, column, rows);
  if (format == "i") return number_of<int32_t>(key, column, rows);
  if (format == "l") return number_of<int64_t>(key, column, rows);
  if (format == "I") return number_of<uint32_t>(key, column, rows);
  if (format == "L") return number_of<uint64_t>(key, column, rows);
  if (format == "g") return number_of<double>(key, column, rows);
  throw BadInput(std::string("column ") + column.schema.name + " has Arrow format " + std::string(format) +
                 ", which has no JSON here");
}

}  // namespace

Members members_of(const Column& parent, size_t rows) {
  Members members;
  Keys keys;
  ConstantMember* constant = nullptr;  // the member that was added last, if it is constant
  for (int64_t at = 0; at < parent.schema.n_children; ++at) keys.insert(parent.schema.children[at]->name);
  for (int64_t at = 0; at < parent.schema.n_children; ++at) {
    const Column column{*parent.schema.children[at], *parent.array.children[at], parent.from};
    if (column.schema.name == std::string_view("...")) {
      if (column.schema.format != std::string_view("vu")) throw BadInput("only texts can be spread");
      members.push_back(std::make_unique<SpreadMember>(column.texts(), keys));
      constant = nullptr;
      continue;
    }
    ColumnMember built = member_of(column, rows);
    if (column.array.null_count == column.array.length) continue;
    if (built.is_constant) {
      if (constant == nullptr) members.push_back(std::unique_ptr<Member>(constant = new ConstantMember));
      constant->append(*built.member);
    } else {
      members.push_back(std::move(built.member));
      constant = nullptr;
    }
  }
  return members;
}

}  // namespace opspan::columns
