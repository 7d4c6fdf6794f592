// Texts made at random go through what reads metadata and labels and what writes texts as JSON, each text ending where
// its memory does: alone and among others the answer is the same, and JSON says the text again. Run by tools/sanitize;
// ends by itself with 0.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>

#include "columns/columns.h"
#include "columns/interface.h"
#include "columns/json.h"
#include "frame.h"

namespace {

using namespace opspan::columns;
using namespace opspan::columns::stress;

constexpr int kRounds = 4'000;
std::mt19937 chance(20261123);
size_t below(size_t count) { return std::uniform_int_distribution<size_t>(0, count - 1)(chance); }

[[noreturn]] void fail(const char* what, const std::string& text) {
  std::printf("%s: %s\n", what, text.c_str());
  std::exit(1);
}

// Pieces of metadata and of labels, in any order, some of their letters changed. All of it is UTF-8.
std::string made() {
  constexpr const char* kPieces[] = {"seq",
                                     "op_id",
                                     "fwd_tid",
                                     "sizes",
                                     "\"",
                                     "'",
                                     ":",
                                     " = ",
                                     ", seq = 5",
                                     "[[2, 3]",
                                     ", []]",
                                     "[",
                                     "]",
                                     " ",
                                     "{\"seq\": ",
                                     "123456789",
                                     "-1",
                                     ", op_id = 7",
                                     "\\",
                                     "\n",
                                     "\x01",
                                     "\x7f",
                                     "\u00e9",
                                     "\u2028",
                                     "aten::mm",
                                     ", sizes = [[]]",
                                     ", input_op_ids = [(1,0)]"};
  std::string text;
  for (size_t count = below(14); count > 0; --count) text += kPieces[below(std::size(kPieces))];
  for (size_t count = below(3); count > 0 && !text.empty(); --count) {
    char& letter = text[below(text.size())];
    if (static_cast<unsigned char>(letter) < 0x80) letter = static_cast<char>(below(0x80));
  }
  return text;
}

// Texts in memory of their own, not a byte longer.
struct Given {
  std::vector<std::unique_ptr<char[]>> memory;
  std::vector<Texts::View> views;
  std::vector<const void*> buffers{nullptr, nullptr};

  explicit Given(const std::vector<std::string>& texts) {
    for (const std::string& text : texts) {
      char* bytes = memory.emplace_back(new char[text.size()]).get();
      std::memcpy(bytes, text.data(), text.size());
      views.push_back(view_of({bytes, text.size()}, static_cast<int32_t>(buffers.size()) - 2, 0));
      buffers.push_back(bytes);
    }
    sizes.resize(buffers.size());
    buffers.push_back(sizes.data());
    buffers[1] = views.data();
  }
  std::vector<int64_t> sizes;
};

// A call's answer about a column called "text": of each row what `told` says of it.
template <class Told>
std::vector<std::string> asked(opspan_columns_call* call, const std::vector<std::string>& texts, const Told& told) {
  Given given(texts);
  Frame frame{{{"text", "vu", given.buffers}}, static_cast<int64_t>(texts.size())};
  ArrowArrayStream stream = frame.stream();
  ArrowSchema schema{};
  ArrowArray array{};
  char error[256] = "";
  if (call(&stream, nullptr, 2, &schema, &array, error, sizeof error) != 0) fail("refused", error);
  std::vector<std::string> answers;
  for (size_t row = 0; row < texts.size(); ++row) {
    std::string& answer = answers.emplace_back();
    for (int64_t at = 0; at < array.n_children; ++at) {
      const ArrowArray& column = *array.children[at];
      const auto* valid = static_cast<const uint8_t*>(column.buffers[0]);
      const bool is_null = column.null_count > 0 && !bit(valid, row);
      answer += std::string(schema.children[at]->name) + "=" +
                (is_null ? "null" : told(*schema.children[at], column, row)) + ";";
    }
  }
  schema.release(&schema);
  array.release(&array);
  return answers;
}

std::string value(const ArrowSchema& schema, const ArrowArray& column, size_t row) {
  const std::string_view format = schema.format;
  if (schema.dictionary != nullptr) {
    const auto code = static_cast<const uint32_t*>(column.buffers[1])[row];
    const auto* offsets = static_cast<const int64_t*>(column.dictionary->buffers[1]);
    const auto* bytes = static_cast<const char*>(column.dictionary->buffers[2]);
    return {bytes + offsets[code], bytes + offsets[code + 1]};
  }
  if (format == "vu") {
    const auto* views = static_cast<const Texts::View*>(column.buffers[1]);
    return std::string(Texts{views, column.buffers + 2, {}}[row]);
  }
  if (format == "l") return std::to_string(static_cast<const int64_t*>(column.buffers[1])[row]);
  return std::to_string(static_cast<const uint8_t*>(column.buffers[1])[row]);
}

// What {"text": ...} says.
std::string said(std::string_view object) {
  Json json(object);
  std::string room;
  json.expect('{');
  json.string();
  json.expect(':');
  const std::string text(Json::text(json.string(), room));
  json.expect('}');
  return text;
}

}  // namespace

int main() {
  size_t all = 0;
  for (int n = 0; n < kRounds; ++n) {
    std::vector<std::string> texts(1 + below(20));
    for (std::string& text : texts) text = made();
    for (auto* call : {opspan_columns_metadata, opspan_columns_labels}) {
      const auto together = asked(call, texts, value);
      for (size_t row = 0; row < texts.size(); ++row) {
        if (asked(call, {texts[row]}, value)[0] != together[row]) fail("alone another answer", texts[row]);
      }
    }
    const auto objects = asked(opspan_columns_json_objects, texts, value);
    for (size_t row = 0; row < texts.size(); ++row) {
      const std::string_view object = std::string_view(objects[row]).substr(5);  // json=
      if (said(object.substr(0, object.size() - 1)) != texts[row]) fail("JSON says another text", texts[row]);
    }
    all += texts.size();
  }
  std::printf("%d rounds, %zu texts\n", kRounds, all);
  return 0;
}
