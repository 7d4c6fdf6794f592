#include "columns/arrow.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace opspan::columns {

// --- columns that come in

Input::Input(ArrowArrayStream* stream) {
  auto last_error = [&] {
    const char* text = stream->get_last_error(stream);
    return std::string(text != nullptr ? text : "no reason given");
  };
  if (stream->get_schema(stream, &schema_) != 0) throw BadInput("the columns cannot be read: " + last_error());
  try {
    if (std::string_view(schema_.format) != "+s") throw BadInput("the columns are not a frame");
    for (;;) {
      ArrowArray array{};
      if (stream->get_next(stream, &array) != 0) throw BadInput("the rows cannot be read: " + last_error());
      if (array.release == nullptr) break;
      if (array.length == 0) {
        array.release(&array);
        continue;
      }
      std::shared_ptr<ArrowArray> batch(new ArrowArray(array), [](ArrowArray* owned) {
        if (owned->release != nullptr) owned->release(owned);
        delete owned;
      });
      if (batch_ != nullptr) throw BadInput("the rows are in pieces: rechunk the frame");
      batch_ = std::move(batch);
    }
    if (batch_ != nullptr) rows_ = static_cast<size_t>(batch_->length);
    if (rows_ >= kNone) throw BadInput("more than 4,294,967,294 rows");
  } catch (...) {
    schema_.release(&schema_);
    throw;
  }
}

Input::~Input() {
  if (schema_.release != nullptr) schema_.release(&schema_);
}

const ArrowArray* Input::find(const char* name, const char** format) const {
  static const ArrowArray no_rows{};
  for (int64_t at = 0; at < schema_.n_children; ++at) {
    if (std::strcmp(schema_.children[at]->name, name) != 0) continue;
    if (format != nullptr) *format = schema_.children[at]->format;
    return batch_ != nullptr ? batch_->children[at] : &no_rows;
  }
  return nullptr;
}

const ArrowArray& Input::expect(const char* name, std::string_view format) const {
  const char* actual = "";
  const ArrowArray* column = find(name, &actual);
  if (column == nullptr) throw BadInput(std::string("column ") + name + " is missing");
  if (actual != format) {
    throw BadInput(std::string("column ") + name + " has Arrow format " + actual + ", expected " + std::string(format));
  }
  return *column;
}

Nulls Input::nulls(const ArrowArray& column) const {
  if (column.null_count == 0) return {};
  return {static_cast<const uint8_t*>(column.buffers[0]), offset(column)};
}

#define OPSPAN_VALUES(T)                                                               \
  template <>                                                                          \
  Values<T> Input::values(const char* name) const {                                    \
    const ArrowArray& column = expect(name, kFormat<T>);                               \
    if (rows_ == 0) return {};                                                         \
    return {static_cast<const T*>(column.buffers[1]) + offset(column), nulls(column)}; \
  }
OPSPAN_VALUES(int32_t)
OPSPAN_VALUES(int64_t)
OPSPAN_VALUES(uint32_t)
OPSPAN_VALUES(uint8_t)
#undef OPSPAN_VALUES

Flags Input::flags(const char* name) const {
  const ArrowArray& column = expect(name, "b");
  if (rows_ == 0) return {};
  return {static_cast<const uint8_t*>(column.buffers[1]), offset(column), nulls(column)};
}

Texts Input::texts(const char* name) const {
  const ArrowArray& column = expect(name, "vu");
  if (rows_ == 0) return {};
  // Arrow's buffers are the validity bits, the views, the buffers with the bytes of the texts, and last the sizes of
  // these buffers.
  return {static_cast<const Texts::View*>(column.buffers[1]) + offset(column), column.buffers + 2, nulls(column)};
}

std::vector<std::shared_ptr<const void>> Input::text_buffers(const char* name) const {
  const ArrowArray& column = expect(name, "vu");
  std::vector<std::shared_ptr<const void>> parts;
  parts.emplace_back(batch_, static_cast<const Texts::View*>(column.buffers[1]) + offset(column));
  for (int64_t at = 2; at < column.n_buffers; ++at) parts.emplace_back(batch_, column.buffers[at]);
  return parts;
}

// --- columns that go out

namespace {

template <class T, class Deleter>
std::shared_ptr<const void> shared(std::unique_ptr<T[], Deleter> values) {
  return std::shared_ptr<T[]>(std::move(values));
}

std::shared_ptr<const void> shared(std::vector<uint8_t>&& bytes) {
  auto owner = std::make_shared<std::vector<uint8_t>>(std::move(bytes));
  return {owner, owner->data()};
}

struct SchemaOwner {
  std::string name;
  std::vector<ArrowSchema> children;
  std::vector<ArrowSchema*> pointers;
  std::unique_ptr<ArrowSchema> dictionary;
};

struct ArrayOwner {
  std::vector<std::shared_ptr<const void>> owners;
  std::vector<const void*> buffers;
  std::vector<ArrowArray> children;
  std::vector<ArrowArray*> pointers;
  std::unique_ptr<ArrowArray> dictionary;
};

// Frees what a schema or array owns. A child that a consumer has moved elsewhere has no `release`.
template <class Owner, class Thing>
void release(Thing* thing) {
  auto* owner = static_cast<Owner*>(thing->private_data);
  for (Thing& child : owner->children) {
    if (child.release != nullptr) child.release(&child);
  }
  if (owner->dictionary != nullptr && owner->dictionary->release != nullptr) {
    owner->dictionary->release(owner->dictionary.get());
  }
  delete owner;
  thing->release = nullptr;
}

}  // namespace

std::pair<char*, int32_t> Blocks::take(size_t bytes) {
  auto block = uninitialized<char>(bytes);
  char* at = block.get();
  const std::lock_guard guard(lock_);
  blocks_.push_back(std::move(block));
  sizes_.push_back(static_cast<int64_t>(bytes));
  return {at, static_cast<int32_t>(blocks_.size() - 1)};
}

Output::Column& Output::column(const char* name, const char* format, Bits* valid) {
  Column& added = columns_.emplace_back();
  added.name = name;
  added.format = format;
  added.length = rows_;
  if (valid != nullptr) {
    size_t valid_count = 0;
    const std::vector<uint8_t>& bytes = valid->bytes();
    size_t byte = 0;
    for (uint64_t word; byte + sizeof word <= bytes.size(); byte += sizeof word) {
      std::memcpy(&word, &bytes[byte], sizeof word);
      valid_count += static_cast<size_t>(std::popcount(word));
    }
    for (; byte < bytes.size(); ++byte) valid_count += static_cast<size_t>(std::popcount(bytes[byte]));
    added.null_count = static_cast<int64_t>(rows_ - valid_count);
  }
  added.owners.push_back(added.null_count > 0 ? shared(std::move(valid->bytes())) : nullptr);
  return added;
}

namespace {
Bits valid_rows(const Row* rows, size_t count) {
  Bits valid(count);
  for (size_t byte = 0; byte < valid.bytes().size(); ++byte) {
    unsigned bits = 0;
    for (size_t at = byte * 8; at < std::min(count, byte * 8 + 8); ++at) bits |= (rows[at] != kNone) << (at & 7);
    valid.bytes()[byte] = static_cast<uint8_t>(bits);
  }
  return valid;
}
}  // namespace

void Output::add(const char* name, Array<Row> rows) {
  Bits valid = valid_rows(rows.get(), rows_);
  column(name, "I", &valid).owners.push_back(shared(std::move(rows)));
}

void Output::add(const char* name, Bits&& flags) {
  column(name, "b", nullptr).owners.push_back(shared(std::move(flags.bytes())));
}

void Output::add(const char* name, std::shared_ptr<const void> views, Bits* valid,
                 std::vector<std::shared_ptr<const void>> buffers, bool is_text) {
  Column& added = column(name, is_text ? "vu" : "vz", valid);
  added.owners.push_back(std::move(views));
  added.owners.insert(added.owners.end(), buffers.begin(), buffers.end());
}

void Output::add(const char* name, Array<Texts::View> views, Bits* valid, const std::shared_ptr<Blocks>& blocks,
                 bool is_text) {
  std::vector<std::shared_ptr<const void>> buffers;
  for (size_t at = 0; at < blocks->count(); ++at) buffers.emplace_back(blocks, blocks->bytes(at));
  buffers.emplace_back(blocks, blocks->sizes());
  add(name, shared(std::move(views)), valid, std::move(buffers), is_text);
}

void Output::add(const char* name, Array<uint32_t> codes, std::vector<std::string_view> dictionary) {
  Bits valid = valid_rows(codes.get(), rows_);
  Column& added = column(name, "I", &valid);
  added.owners.push_back(shared(std::move(codes)));

  auto texts = std::make_unique<Column>();
  texts->format = "U";
  texts->length = dictionary.size();
  auto offsets = uninitialized<int64_t>(dictionary.size() + 1);
  offsets[0] = 0;
  for (size_t at = 0; at < dictionary.size(); ++at) {
    offsets[at + 1] = offsets[at] + static_cast<int64_t>(dictionary[at].size());
  }
  auto bytes = uninitialized<char>(static_cast<size_t>(offsets[dictionary.size()]) + 1);
  for (size_t at = 0; at < dictionary.size(); ++at) {
    std::memcpy(bytes.get() + offsets[at], dictionary[at].data(), dictionary[at].size());
  }
  texts->owners.push_back(nullptr);
  texts->owners.push_back(shared(std::move(offsets)));
  texts->owners.push_back(shared(std::move(bytes)));
  added.dictionary = std::move(texts);
}

void Output::give(Column&& column, ArrowSchema* schema, ArrowArray* array) {
  auto names = std::make_unique<SchemaOwner>();
  auto data = std::make_unique<ArrayOwner>();
  names->name = std::move(column.name);
  data->owners = std::move(column.owners);
  for (const auto& owner : data->owners) data->buffers.push_back(owner.get());
  if (column.dictionary != nullptr) {
    names->dictionary = std::make_unique<ArrowSchema>();
    data->dictionary = std::make_unique<ArrowArray>();
    give(std::move(*column.dictionary), names->dictionary.get(), data->dictionary.get());
  }
  constexpr int64_t kNullable = 2;
  *schema = {column.format,
             names->name.c_str(),
             nullptr,
             kNullable,
             0,
             nullptr,
             names->dictionary.get(),
             release<SchemaOwner, ArrowSchema>,
             nullptr};
  *array = {static_cast<int64_t>(column.length),
            column.null_count,
            0,
            static_cast<int64_t>(data->buffers.size()),
            0,
            data->buffers.data(),
            nullptr,
            data->dictionary.get(),
            release<ArrayOwner, ArrowArray>,
            nullptr};
  schema->private_data = names.release();
  array->private_data = data.release();
}

void Output::give(ArrowSchema* schema, ArrowArray* array) {
  auto names = std::make_unique<SchemaOwner>();
  auto data = std::make_unique<ArrayOwner>();
  const size_t count = columns_.size();
  names->children.resize(count);
  data->children.resize(count);
  data->buffers.push_back(nullptr);
  for (size_t at = 0; at < count; ++at) {
    give(std::move(columns_[at]), &names->children[at], &data->children[at]);
    names->pointers.push_back(&names->children[at]);
    data->pointers.push_back(&data->children[at]);
  }
  const auto children = static_cast<int64_t>(count);
  *schema = {"+s",   "", nullptr, 0, children, names->pointers.data(), nullptr, release<SchemaOwner, ArrowSchema>,
             nullptr};
  *array = {
      static_cast<int64_t>(rows_),     0,      0, 1, children, data->buffers.data(), data->pointers.data(), nullptr,
      release<ArrayOwner, ArrowArray>, nullptr};
  schema->private_data = names.release();
  array->private_data = data.release();
}

}  // namespace opspan::columns
