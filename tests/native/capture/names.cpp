// Keeps and looks for names, each at several places of memory and many at the end of what may be read, and compares
// with a table of the standard library's. Prints how many were found, and how many that are no longer kept.
//
//   names SEED
#include "capture/names.h"

#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <random>
#include <string>

using namespace opspan::capture;

namespace {

constexpr uint32_t kOp = static_cast<uint32_t>(Kind::kOp), kBackward = static_cast<uint32_t>(Kind::kBackward),
                   kEngine = static_cast<uint32_t>(Kind::kEngine);

// Two pages, of which only the first may be read.
char* guarded_page() {
  void* made = mmap(nullptr, 2 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (made == MAP_FAILED || mprotect(static_cast<char*>(made) + kPage, kPage, PROT_NONE)) std::abort();
  return static_cast<char*>(made);
}

}  // namespace

int main(int, char** argv) {
  std::mt19937 chance(static_cast<unsigned>(std::atoi(argv[1])));
  auto upto = [&](unsigned n) { return chance() % n; };
  std::map<std::string, uint32_t> kept;
  Names<uint32_t> names;
  char* page = guarded_page();
  int found = 0, gone = 0;
  for (int i = 0; i < 200'000; ++i) {
    // Much alike: few letters, and often as long as what is read at once.
    std::string text(upto(3) ? upto(20) : 10 * upto(6), 'a');
    for (unsigned changes = upto(3); changes && !text.empty(); --changes) text[upto(text.size())] = 'b';
    const uint32_t kind = upto(2) ? kOp : upto(2) ? kBackward : kEngine;
    if (kind == kEngine) text = OpName::kEngine + text;
    const size_t behind = upto(2) ? 0 : upto(40);
    std::memset(page + kPage - 200, 'a', 200);
    char* at = page + kPage - behind - text.size() - 1;
    text.copy(at, text.size());
    at[text.size()] = 0;

    const OpName name(at, kind);
    const uint32_t value = names.find(name);
    const auto known = kept.find(text);
    if (value && (known == kept.end() || known->second != value)) return std::puts(text.c_str()), 1;
    found += value != 0;
    gone += !value && known != kept.end();
    if (upto(4)) continue;
    if (upto(500) == 0) names.clear(), kept.clear();
    const uint32_t given = kept.emplace(text, 1 + chance() % 1'000'000).first->second;
    names.add(name, given);
    const size_t letters = std::strlen(name.key);
    if (names.find(name) != (letters && letters < 48 ? given : 0)) return std::puts(text.c_str()), 2;
  }
  std::printf("%d %d\n", found, gone);
}
