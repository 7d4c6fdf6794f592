// Runs of words that are much alike, each once: prints how many there are, and how many have a half of their digest in
// common with another.
#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include <unordered_set>
#include <vector>

#include "capture/hash.h"

using opspan::capture::Digest;

int main() {
  std::unordered_set<uint64_t> first, second;
  size_t runs = 0;
  auto add = [&](const std::vector<int64_t>& words, size_t cut = 0) {
    Digest digest;
    digest.add(words.data(), words.size() - cut);
    if (cut) digest.add(words.data() + words.size() - cut, cut);
    first.insert(digest.first);
    second.insert(digest.second);
    ++runs;
  };
  // Sizes of a tensor, from none to four.
  for (int64_t i = 0; i < 40; ++i) {
    for (int64_t j = 0; j < 40; ++j) {
      for (int64_t k = 0; k < 40; ++k) {
        add({i, j, k});
        for (int64_t rank = 0; rank < 10; ++rank) add({1 | rank << 32, i, j, k});
      }
      add({i, j});
    }
    add({i});
  }
  // Zeros, of which only the count tells them apart, and where one run ends and another begins.
  for (size_t count = 5; count < 1000; ++count) add(std::vector<int64_t>(count));
  for (size_t cut = 1; cut < 500; ++cut) add(std::vector<int64_t>(500), cut);
  // Powers of two and their like, at each place of a run.
  for (size_t at = 0; at < 24; ++at) {
    for (int bit = 6; bit < 62; ++bit) {
      for (int64_t word : {int64_t{1} << bit, ~(int64_t{1} << bit), -(int64_t{1} << bit)}) {
        std::vector<int64_t> words(24);
        words[at] = word;
        add(words);
      }
    }
  }
  std::printf("%zu %zu\n", runs, 2 * runs - first.size() - second.size());
}
