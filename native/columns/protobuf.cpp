// Writes the rows of a frame as messages of Protocol Buffers. Each row becomes a message, in a field whose number the
// caller gives. The message has a field for each column that is not null in the row. A column's name is the number of
// its field. A colon and more text may follow the number: this helps people, and makes the names of several columns of
// one repeated field different.
//
//   {"8": 12, "11": {"9": 1, "23": "aten::mm"}}  ->  8: 12  11 {9: 1  23: "aten::mm"}
//
// A struct becomes a message, and a text becomes bytes. Integers become varints, except for unsigned 64-bit integers:
// these and real numbers are written as eight bytes without any change. A list becomes a repeated field. The encoding:
// https://protobuf.dev/programming-guides/encoding

#include <charconv>

#include "columns/interface.h"
#include "columns/rows.h"

namespace opspan::columns {
namespace {

enum Wire : uint64_t { kVarint = 0, kEightBytes = 1, kLengthPrefix = 2 };
constexpr size_t kLongestVarint = 10;

char* varint(uint64_t value, char* to) {
  for (; value >= 0x80; value >>= 7) *to++ = static_cast<char>(value | 0x80);
  *to++ = static_cast<char>(value);
  return to;
}

struct Field {
  Field(uint64_t number, Wire wire) {
    char bytes[kLongestVarint];
    tag.set({bytes, static_cast<size_t>(varint(number << 3 | wire, bytes) - bytes)});
  }
  Field(const Field&) = delete;
  Field& operator=(const Field&) = delete;
  virtual ~Field() = default;
  virtual char* write(size_t row, char* to, Text& out) = 0;
  // Writes the tag and makes room for a number behind it. Returns the position for that number.
  char* begin(char* to, Text& out) const { return tag.copy_to(out.room(to, tag.size() + kLongestVarint)); }
  ShortText tag;
};
using Fields = std::vector<std::unique_ptr<Field>>;

template <class T>
struct VarintField : Field {
  VarintField(uint64_t number, Values<T> column) : Field(number, kVarint), values(column) {}
  char* write(size_t row, char* to, Text& out) override {
    // Protobuf writes a negative 32-bit number as a 64-bit number.
    return values.null(row) ? to : varint(static_cast<uint64_t>(int64_t{values[row]}), begin(to, out));
  }
  Values<T> values;
};

struct BoolField : Field {
  BoolField(uint64_t number, Flags column) : Field(number, kVarint), flags(column) {}
  char* write(size_t row, char* to, Text& out) override {
    return flags.null(row) ? to : varint(flags[row] ? 1 : 0, begin(to, out));
  }
  Flags flags;
};

template <class T>
struct EightBytesField : Field {
  static_assert(sizeof(T) == 8 && std::endian::native == std::endian::little);
  EightBytesField(uint64_t number, Values<T> column) : Field(number, kEightBytes), values(column) {}
  char* write(size_t row, char* to, Text& out) override {
    if (values.null(row)) return to;
    to = begin(to, out);
    std::memcpy(to, &values.data[row], sizeof(T));
    return to + sizeof(T);
  }
  Values<T> values;
};

struct RepeatedField : Field {
  RepeatedField(uint64_t number, Values<int64_t> offsets, std::unique_ptr<Field> inner)
      : Field(number, kLengthPrefix), ends(offsets), items(std::move(inner)) {}
  char* write(size_t row, char* to, Text& out) override {
    if (ends.null(row)) return to;
    for (int64_t at = ends.data[row]; at < ends.data[row + 1]; ++at)
      to = items->write(static_cast<size_t>(at), to, out);
    return to;
  }
  Values<int64_t> ends;
  std::unique_ptr<Field> items;
};

struct BytesField : Field {
  BytesField(uint64_t number, Texts column) : Field(number, kLengthPrefix), texts(column) {}
  char* write(size_t row, char* to, Text& out) override {
    if (texts.null(row)) return to;
    return out.add(varint(texts[row].size(), begin(to, out)), texts[row]);
  }
  Texts texts;
};

struct MessageField : Field {
  MessageField(uint64_t number, Nulls nulls, Fields inner)
      : Field(number, kLengthPrefix), null(nulls), fields(std::move(inner)) {}
  char* write(size_t row, char* to, Text& out) override {
    if (null(row)) return to;
    to = begin(to, out) + 1;  // leaves one byte for the size, which is enough for most messages
    const size_t from = out.size(to);
    for (const auto& field : fields) to = field->write(row, to, out);
    const size_t size = out.size(to) - from;
    char bytes[kLongestVarint];
    const size_t more = static_cast<size_t>(varint(size, bytes) - bytes) - 1;
    to = out.room(to, more) + more;
    char* inside = out.begin() + from;
    if (more > 0) std::memmove(inside + more, inside, size);
    std::memcpy(inside - 1, bytes, more + 1);
    return to;
  }
  Nulls null;
  Fields fields;
};

// --- from columns to fields

uint64_t field_number(std::string_view name) {
  constexpr uint64_t kHighest = (1 << 29) - 1;
  uint64_t number = 0;
  const std::string_view digits = name.substr(0, name.find(':'));
  std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (number < 1 || number > kHighest) throw BadInput("column " + std::string(name) + " has no number of a field");
  return number;
}

std::unique_ptr<Field> field_of(uint64_t number, const Column& column);

Fields fields_of(const Column& parent) {
  Fields fields;
  for (int64_t at = 0; at < parent.schema.n_children; ++at) {
    const ArrowSchema& schema = *parent.schema.children[at];
    fields.push_back(field_of(field_number(schema.name), {schema, *parent.array.children[at], parent.from}));
  }
  return fields;
}

std::unique_ptr<Field> field_of(uint64_t number, const Column& column) {
  const std::string_view format = column.schema.dictionary == nullptr ? column.schema.format : "a dictionary";
  if (format == "+s") return std::make_unique<MessageField>(number, column.nulls(), fields_of(column));
  if (format == "+L") {
    const Column items{*column.schema.children[0], *column.array.children[0], 0};
    return std::make_unique<RepeatedField>(number, column.values<int64_t>(), field_of(number, items));
  }
  if (format == "vu" || format == "vz") return std::make_unique<BytesField>(number, column.texts());
  if (format == "b") return std::make_unique<BoolField>(number, column.flags());
  if (format == "C") return std::make_unique<VarintField<uint8_t>>(number, column.values<uint8_t>());
  if (format == "i") return std::make_unique<VarintField<int32_t>>(number, column.values<int32_t>());
  if (format == "I") return std::make_unique<VarintField<uint32_t>>(number, column.values<uint32_t>());
  if (format == "l") return std::make_unique<VarintField<int64_t>>(number, column.values<int64_t>());
  if (format == "L") return std::make_unique<EightBytesField<uint64_t>>(number, column.values<uint64_t>());
  if (format == "g") return std::make_unique<EightBytesField<double>>(number, column.values<double>());
  throw BadInput(std::string("column ") + column.schema.name + " has Arrow format " + std::string(format) +
                 ", which is no field here");
}

}  // namespace

Output protobuf(const Input& frame, int64_t number) {
  Text text;
  char* to = text.begin();
  if (frame.rows() > 0) {
    MessageField row(field_number(std::to_string(number)), {}, fields_of({frame.schema(), frame.batch(), 0}));
    for (size_t at = 0; at < frame.rows(); ++at) to = row.write(at, to, text);
  }
  Output out(text.size(to));
  out.add("bytes", text.take());
  return out;
}

}  // namespace opspan::columns
