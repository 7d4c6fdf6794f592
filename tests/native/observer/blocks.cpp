// Blocks against a table of the standard library's: what is put and taken in any order, many at a time and few.
#include "observer/blocks.h"

#include <cstdio>
#include <cstdlib>
#include <unordered_map>
#include <vector>

int main(int, char** argv) {
  srand(static_cast<unsigned>(atoi(argv[1])));
  static opspan::Blocks blocks;
  std::unordered_map<void*, size_t> twin;
  std::vector<char> memory(1 << 20);
  size_t found = 0;
  for (int i = 0; i < 200000; ++i) {
    // Few addresses, so that they come again; more of them in the middle.
    size_t most = i / 50000 % 2 ? memory.size() / 16 : 300;
    void* block = &memory[static_cast<size_t>(rand()) % most * 16];
    if (rand() % 2) {
      blocks.put(block, static_cast<size_t>(i));
      twin[block] = static_cast<size_t>(i);
      continue;
    }
    size_t size = 0;
    auto known = twin.find(block);
    bool is_there = blocks.take(block, &size);
    if (is_there != (known != twin.end()) || (is_there && size != known->second)) return printf("wrong at %d\n", i), 1;
    if (is_there) twin.erase(known), ++found;
  }
  size_t size = 0;
  for (auto& [block, expected] : twin) {
    if (!blocks.take(block, &size) || size != expected) return printf("lost a block\n"), 1;
  }
  if (blocks.take(nullptr, &size)) return printf("found nothing\n"), 1;
  printf("%zu %zu\n", found, twin.size());
  return 0;
}
