// The rows of a frame as items of a JSON list: each an object, with a member for each column that is not null there.
//
//   {"name":"aten::mm","ts":12.345,"args":{"bytes":4096}},
//   {"name":"no args","ts":13.000,"args":{}}
//
// A struct is an object again, a duration is its microseconds, binary is JSON as it stands, and a text is a string.

#include <array>
#include <charconv>
#include <cmath>
#include <concepts>

#include "columns/columns.h"
#include "columns/interface.h"
#include "columns/json.h"

namespace opspan::columns {
namespace {

// A few bytes that are copied often: sixteen at a time, with room to read behind them.
class Short {
 public:
  static constexpr size_t kStep = 16;
  explicit Short(std::string_view text = {}) { set(text); }
  void set(std::string_view text) {
    bytes_.assign(text);
    bytes_.append(kStep, '\0');
    size_ = text.size();
  }
  char* copy_to(char* to) const {
    for (size_t at = 0; at < size_; at += kStep) std::memcpy(to + at, bytes_.data() + at, kStep);
    return to + size_;
  }
  size_t size() const { return size_; }

 private:
  std::string bytes_;
  size_t size_ = 0;
};

// What is being written, with room behind its end.
class Text {
 public:
  // For so many bytes, and a step more, at the end; then they are `wrote` up to there.
  char* room(size_t bytes) {
    const size_t wanted = size_ + bytes + Short::kStep;
    if (wanted > room_) grow(std::max(wanted, room_ * 2));
    return begin() + size_;
  }
  void wrote(const char* end) { size_ = static_cast<size_t>(end - begin()); }
  void add(const Short& text) { wrote(text.copy_to(room(text.size()))); }
  void add(std::string_view text) {
    std::memcpy(room(text.size()), text.data(), text.size());
    size_ += text.size();
  }
  size_t size() const { return size_; }
  char& operator[](size_t at) { return begin()[at]; }
  std::unique_ptr<uint8_t[]> take() { return std::move(bytes_); }

 private:
  char* begin() { return reinterpret_cast<char*>(bytes_.get()); }
  void grow(size_t room) {
    auto larger = uninitialized<uint8_t>(room);
    if (size_ > 0) std::memcpy(larger.get(), bytes_.get(), size_);
    bytes_ = std::move(larger);
    room_ = room;
  }
  std::unique_ptr<uint8_t[]> bytes_;
  size_t size_ = 0, room_ = 0;
};

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

struct Json : Member {
  Json(std::string_view name, Texts column) : key(name), texts(column) {}
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

// A column of a frame or of a struct; `from` is where its rows begin.
struct Column {
  const ArrowSchema& schema;
  const ArrowArray& array;
  size_t from;

  Column(const ArrowSchema& type, const ArrowArray& data, size_t parent_from)
      : schema(type), array(data), from(parent_from + static_cast<size_t>(data.offset)) {}

  Nulls nulls() const {
    if (array.null_count == 0) return {};
    return {static_cast<const uint8_t*>(array.buffers[0]), from};
  }
  template <class T>
  Values<T> values() const {
    return {static_cast<const T*>(array.buffers[1]) + from, nulls()};
  }
  Texts texts() const { return {static_cast<const Texts::View*>(array.buffers[1]) + from, array.buffers + 2, nulls()}; }
};

std::unique_ptr<Member> member_of(const Column& column);

Members members_of(const Column& parent) {
  Members members;
  for (int64_t at = 0; at < parent.schema.n_children; ++at) {
    members.push_back(member_of({*parent.schema.children[at], *parent.array.children[at], parent.from}));
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
  if (format == "vz") return std::make_unique<Json>(key, column.texts());
  if (format == "tDn") return std::make_unique<Number<Duration>>(key, column.values<Duration>());
  if (format == "i") return std::make_unique<Number<int32_t>>(key, column.values<int32_t>());
  if (format == "l") return std::make_unique<Number<int64_t>>(key, column.values<int64_t>());
  if (format == "I") return std::make_unique<Number<uint32_t>>(key, column.values<uint32_t>());
  if (format == "L") return std::make_unique<Number<uint64_t>>(key, column.values<uint64_t>());
  if (format == "g") return std::make_unique<Number<double>>(key, column.values<double>());
  throw BadInput(std::string("column ") + column.schema.name + " has Arrow format " + std::string(format) +
                 ", which has no JSON here");
}

}  // namespace

Output json_items(const Input& frame, int64_t before) {
  Text text;
  if (frame.rows() > 0) {
    const Members members = members_of({frame.schema(), frame.batch(), 0});
    for (size_t row = 0; row < frame.rows(); ++row) {
      if (row > 0 || before > 0) text.add(",\n");
      write_object(members, row, text);
    }
  }
  Output out(text.size());
  out.add("bytes", text.take());
  return out;
}

}  // namespace opspan::columns
