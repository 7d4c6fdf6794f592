// Parses a column of labels. Names and sizes become dictionaries; all other fields become numbers or views into the
// texts.

#include <array>
#include <bit>

#include "columns/columns.h"
#include "columns/grammar.h"
#include "columns/interface.h"
#include "columns/parallel.h"

namespace opspan::columns {
namespace {

struct Columns {
  explicit Columns(size_t rows)
      : seq(rows),
        op_id(rows),
        forward_tid(rows),
        args(rows),
        input_op_ids(rows),
        has_text(rows),
        name(rows),
        class_name(rows),
        sizes(rows),
        kind(uninitialized<uint8_t>(rows)),
        has_kind(rows) {}
  Numbers seq, op_id, forward_tid;
  Views args, input_op_ids;
  Bits has_text;  // true if the text is more than a name
  Codes name, class_name, sizes;
  Array<uint8_t> kind;
  Bits has_kind;
};

struct Kinds {  // the kinds of ranges with this name, with and without a seq
  uint8_t with_seq, without_seq;
};

// Remembers texts that are just a name, by their views. Equal texts mostly have equal views, and then the text is not
// read again.
class PlainNames {
 public:
  struct Entry {
    std::array<uint64_t, 2> view{};
    uint32_t name = kNone;
    uint8_t kind = 0;
  };
  // Returns the only entry in which this view may be remembered. If the entry's `view` differs, the entry is empty or
  // in use for another text.
  Entry& of(const std::array<uint64_t, 2>& view) {
    return entries_[(view[0] ^ std::rotl(view[1], 32)) * 0x9e3779b97f4a7c15u >> 56];
  }

 private:
  std::array<Entry, 256> entries_;
};

struct Part : Rows {
  Dictionary names, classes, sizes;
  size_t text_bytes = 0, all_bytes = 0;  // bytes of the texts that are more than a name; bytes of all texts

  void parse(const Texts& texts, Columns& out) {
    std::vector<Kinds> kinds;
    PlainNames plain_names;
    auto code = [](Dictionary& dictionary, const std::optional<std::string_view>& text) {
      return text ? dictionary.code(*text) : kNone;
    };
    for (size_t row = from; row < to; ++row) {
      if (texts.null(row)) {
        out.name.codes[row] = out.class_name.codes[row] = out.sizes.codes[row] = kNone;
        out.kind[row] = 0;
        continue;
      }
      const auto view = std::bit_cast<std::array<uint64_t, 2>>(texts.views[row]);
      PlainNames::Entry& entry = plain_names.of(view);
      if (entry.name != kNone && entry.view == view) {
        out.name.codes[row] = entry.name;
        out.class_name.codes[row] = out.sizes.codes[row] = kNone;
        out.kind[row] = entry.kind;
        out.has_kind.set(row);
        all_bytes += static_cast<size_t>(texts.views[row].length);
        continue;
      }
      const std::string_view text = texts[row];
      const Label label = parse_label(text);
      const uint32_t name = out.name.codes[row] = names.code(label.name);
      if (name == kinds.size()) kinds.push_back({kind_of(label.name, true), kind_of(label.name, false)});
      out.kind[row] = label.class_name ? kModule : label.seq ? kinds[name].with_seq : kinds[name].without_seq;
      out.has_kind.set(row);
      out.seq.set(row, label.seq);
      out.op_id.set(row, label.op_id);
      out.forward_tid.set(row, label.forward_tid);
      out.class_name.codes[row] = code(classes, label.class_name);
      out.sizes.codes[row] = code(sizes, label.sizes);
      all_bytes += text.size();
      if (label.name.size() == text.size()) {
        entry = {view, name, out.kind[row]};
        continue;
      }
      text_bytes += text.size();
      out.has_text.set(row);
      auto part = [&](const std::string_view& field) {
        const Texts::View& text_view = texts.views[row];
        const bool is_inline = text_view.length <= Texts::kInline;
        const auto within = static_cast<int32_t>(field.data() - text.data());
        return view_of(field, is_inline ? 0 : text_view.buffer, is_inline ? 0 : text_view.offset + within);
      };
      if (label.args) out.args.set(row, part(*label.args));
      if (label.input_op_ids) out.input_op_ids.set(row, part(*label.input_op_ids));
    }
  }

  // Copies the texts that are more than a name, and points their fields to the copies.
  void copy(const Texts& texts, Views& text, Columns& out, const std::shared_ptr<Blocks>& blocks) const {
    Copies copies(blocks);
    for (size_t row = from; row < to; ++row) {
      if (!out.has_text[row]) continue;
      text.set(row, view_of(copies.add(texts[row])));
      for (Views* fields : {&out.args, &out.input_op_ids}) {
        Texts::View& field = fields->views[row];
        if (field.length <= Texts::kInline) continue;
        field.buffer = text.views[row].buffer;
        field.offset += text.views[row].offset - texts.views[row].offset;
      }
    }
  }
};

// Adds the texts that are more than a name, and the fields that are views into them. If these texts have most of the
// bytes, the output uses the input's buffers. Otherwise the texts are copied, so that the input can be freed.
void add_texts(const Input& frame, const Texts& texts, const std::vector<Part>& parts, Columns& columns, Output& out) {
  size_t text_bytes = 0, all_bytes = 0;
  for (const Part& part : parts) {
    text_bytes += part.text_bytes;
    all_bytes += part.all_bytes;
  }
  if (text_bytes > all_bytes / 2) {
    auto buffers = frame.text_buffers("text");
    const std::shared_ptr<const void> views = std::move(buffers.front());
    buffers.erase(buffers.begin());
    out.add("text", views, &columns.has_text, buffers);
    for (auto [name, fields] : {std::pair{"args", &columns.args}, std::pair{"input_op_ids", &columns.input_op_ids}}) {
      out.add(name, std::shared_ptr<Texts::View[]>(std::move(fields->views)), &fields->valid, buffers);
    }
    return;
  }
  const auto blocks = std::make_shared<Blocks>();
  Views text(frame.rows());
  run_parallel(parts.size(), [&](size_t n) { parts[n].copy(texts, text, columns, blocks); });
  out.add("text", std::move(text.views), &text.valid, blocks);
  out.add("args", std::move(columns.args.views), &columns.args.valid, blocks);
  out.add("input_op_ids", std::move(columns.input_op_ids.views), &columns.input_op_ids.valid, blocks);
}

}  // namespace

Output labels(const Input& frame, int64_t workers) {
  const size_t rows = frame.rows();
  const Texts texts = frame.texts("text");
  Columns columns(rows);
  auto parts = parts_of<Part>(rows, workers);
  run_parallel(parts.size(), [&](size_t n) { parts[n].parse(texts, columns); });

  Output out(rows);
  auto names = join(parts, &Part::names, columns.name);
  auto classes = join(parts, &Part::classes, columns.class_name);
  auto sizes = join(parts, &Part::sizes, columns.sizes);
  out.add("name", std::move(columns.name.codes), std::move(names));
  out.add("seq", std::move(columns.seq.values), &columns.seq.valid);
  out.add("op_id", std::move(columns.op_id.values), &columns.op_id.valid);
  out.add("forward_tid", std::move(columns.forward_tid.values), &columns.forward_tid.valid);
  out.add("class_name", std::move(columns.class_name.codes), std::move(classes));
  out.add("sizes", std::move(columns.sizes.codes), std::move(sizes));
  out.add("kind", std::move(columns.kind), &columns.has_kind);
  add_texts(frame, texts, parts, columns, out);
  return out;
}

}  // namespace opspan::columns
