// What a client may hand a tool that it should not: random choices that any run makes again.
#pragma once

#include <cstdint>
#include <cstring>
#include <iterator>
#include <random>
#include <vector>

struct Hostile {
  std::mt19937_64 random;
  explicit Hostile(uint64_t seed) : random(seed) {}

  uint64_t upto(uint64_t n) { return random() % n; }
  bool one_in(uint64_t n) { return upto(n) == 0; }

  // A size, a count, an offset, a version: what was never set, what overflows, what is off by one.
  uint64_t odd() {
    static constexpr uint64_t kOdd[] = {0,
                                        1,
                                        2,
                                        3,
                                        7,
                                        8,
                                        9,
                                        64,
                                        1 << 10,
                                        (1 << 16) + 1,
                                        (1 << 20) + 1,
                                        uint64_t{1} << 31,
                                        uint64_t{1} << 32,
                                        uint64_t{1} << 63,
                                        ~uint64_t{0},
                                        ~uint64_t{0} - 1,
                                        ~uint64_t{0} - 7};
    return one_in(4) ? random() : kOdd[upto(std::size(kOdd))];
  }

  // One of those that are good, or an address near it, or none at all.
  template <typename Handle>
  Handle handle(const std::vector<Handle>& good) {
    uint64_t address = good.empty() ? 0 : reinterpret_cast<uint64_t>(good[upto(good.size())]);
    switch (upto(12)) {
      case 0:
        return nullptr;
      case 1:
        return reinterpret_cast<Handle>(address + 1);
      case 2:
        return reinterpret_cast<Handle>(address + 64 * upto(2000));
      case 3:
        return reinterpret_cast<Handle>(address & ~uint64_t{0xffff});
      case 4:
        return reinterpret_cast<Handle>(odd());
      case 5:
        return reinterpret_cast<Handle>(this);
      default:
        return reinterpret_cast<Handle>(address);
    }
  }
};
