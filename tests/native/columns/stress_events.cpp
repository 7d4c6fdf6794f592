// Chrome traces damaged at random go through the reader of events, in pieces of random sizes that end where their
// memory does. Run by tools/sanitize; ends by itself with 0.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "columns/interface.h"
#include "frame.h"

namespace {

using namespace opspan::columns;
using namespace opspan::columns::stress;

constexpr int kDocuments = 20'000;
std::mt19937 chance(20261121);
size_t below(size_t count) { return std::uniform_int_distribution<size_t>(0, count - 1)(chance); }

// --- documents

std::string document() {
  std::string text = below(3) ? R"({"schemaVersion": 1, "traceEvents": [)" : "[";
  for (size_t count = below(12); count > 0; --count) {
    text +=
        R"({"ph": "X", "cat": "cpu_op", "name": "aten::m\u00e4m \"x\"", "pid": 7, "tid": "9", "ts": 17121954955.047, )";
    text +=
        R"("dur": 6.5, "args": {"seq": 12, "op_id": [7], "share": 0.5, "said": "te\\xt", "sizes": [[2, 3], []], "more": {"a": [1]}, )";
    text += R"("Ev Idx": 4, "other": [true, null, -1e5, "\ud83d\ude00"]}},)";
    text += below(2) ? "\n" : " ";
  }
  return text + (text[0] == '{' ? "]}" : "]");
}

// Events within events, few of which end, and a tail that each of them is read to.
std::string nested() {
  std::string text = below(2) ? R"({"schemaVersion": 1, "traceEvents": [)" : "[";
  const char* const kLevels[] = {R"({"ph":"X","x":[)", R"({"ph":"X","ts":1,"args":{"a":[)", R"([{"ph":)", "["};
  const char* const level = kLevels[below(4)];
  for (size_t depth = below(700); depth > 0; --depth) text += level;
  for (size_t count = below(2'000); count > 0; --count) text += below(9) ? "1," : R"({"ph":"i"},)";
  return text;
}

void damage(std::string& text) {
  constexpr std::string_view kOdd = "{}[]\",:\\u0e-.x\xff\n";
  for (size_t count = below(6); count > 0 && !text.empty(); --count) {
    const size_t at = below(text.size());
    switch (below(4)) {
      case 0:
        text[at] = static_cast<char>(below(256));
        break;
      case 1:
        text[at] = kOdd[below(kOdd.size())];
        break;
      case 2:
        text.erase(at, below(40) + 1);
        break;
      default:
        text.insert(at, text.substr(below(text.size()), below(60)));
    }
  }
}

// --- a round

struct Read {
  size_t used;
  int64_t state, rows;
};

Read read(const std::string& text, int64_t number) {
  // Memory of its own, not a byte longer: what is read behind it is found.
  std::unique_ptr<uint8_t[]> bytes(new uint8_t[text.size()]);
  std::memcpy(bytes.get(), text.data(), text.size());
  // All types there are; the last is what categories begin with.
  const Texts::View keys[] = {view("seq"),  view("share"), view("said"), view("sizes"),
                              view("more"), view("op_id"), view("cpu")};
  const uint8_t types[] = {0, 1, 2, 3, 4, 5, 6};
  const auto address = reinterpret_cast<int64_t>(bytes.get()), size = static_cast<int64_t>(text.size());
  Frame piece{{{"address", "l", {nullptr, &address}}, {"bytes", "l", {nullptr, &size}}}, 1};
  Frame wanted{{{"column", "vu", {nullptr, keys, nullptr}},
                {"key", "vu", {nullptr, keys, nullptr}},
                {"as", "C", {nullptr, types}}},
               7};
  ArrowArrayStream first = piece.stream(), second = wanted.stream();
  ArrowSchema schema{};
  ArrowArray array{};
  char error[256] = "";
  if (opspan_columns_events(&first, &second, number, &schema, &array, error, sizeof error) != 0) {
    std::printf("refused: %s\n", error);
    std::exit(1);
  }
  Read done{0, number / 2, array.length};
  if (array.length > 0) {
    const auto last = array.length - 1;
    done.state = static_cast<const uint8_t*>(array.children[1]->buffers[1])[last];
    done.used = static_cast<size_t>(static_cast<const int64_t*>(array.children[2]->buffers[1])[last]);
  }
  schema.release(&schema);
  array.release(&array);
  return done;
}

}  // namespace

int main() {
  long events = 0;
  for (int n = 0; n < kDocuments; ++n) {
    std::string text = n % 100 ? document() : nested(), rest;
    damage(text);
    int64_t state = 0;
    for (size_t at = 0; state != 4;) {
      const size_t size = std::min(text.size() - at, below(text.size() + 1) + 1);
      rest += text.substr(at, size);
      at += size;
      const bool is_last = at == text.size();
      for (;;) {
        const Read done = read(rest, 2 * state + is_last);
        if (done.used > rest.size() || (done.rows > 0 && done.used == 0 && done.state == state)) {
          std::printf("no progress\n");
          return 1;
        }
        state = done.state;
        events += done.rows;
        rest.erase(0, done.used);
        if (done.rows == 0 || state == 4) break;
      }
      if (is_last && state != 4) {
        std::printf("the last bytes did not end it\n");
        return 1;
      }
    }
  }
  std::printf("%d documents, %ld rows\n", kDocuments, events);
  return 0;
}
