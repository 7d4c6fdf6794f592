// Writes ranges that fit into half a line among others that do not, at every place in a line and over several chunks,
// and prints what a reader must find: number, start, end (0: none), source, flags, value, id, category, forward or
// stack, sizes, color and schema of ranges; flags, time, address, bytes, total and device of memory.
//
//   halves FOLDER RANGES SEED
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include "capture/writer.h"

using namespace opspan::capture;

namespace {

struct Open {
  Place place;
  int64_t end_ns;
};

// One of the tools' sources alone: of what both told within the same time, a reader leaves one out.
Event made(std::mt19937_64& chance, uint32_t name, int64_t start_ns, Source tool) {
  auto one_of = [&](auto... these) {
    uint64_t all[] = {static_cast<uint64_t>(these)...};
    return all[chance() % std::size(all)];
  };
  Event event{};
  event.kind = static_cast<uint8_t>(one_of(Unit::kRange, Unit::kRange, Unit::kRange, Unit::kMark));
  event.source =
      static_cast<uint8_t>(one_of(Source::kTorch, Source::kTorch, Source::kTorch, Source::kUser, tool, tool));
  event.flags = static_cast<uint16_t>(one_of(0, kValueInt, kValueInt | kHasForward, kHasStack, kHasOverload, kHasInputs,
                                             kHasLabel | kValueUint, kHasLabel | kHasForward, kHasColor));
  event.name = name;
  event.range.start_ns = start_ns;
  event.range.value = static_cast<int64_t>(event.flags & kValueMask ? one_of(0, 7, 0xffffffff, 1ull << 32, -2) : 0);
  event.range.id = one_of(1, 0xffffffff, 1ull << 32, chance() % 1000);
  event.range.category = static_cast<uint32_t>(one_of(1, 2, 13, 15, 16));
  event.range.forward_tid =
      event.flags & (kHasForward | kHasStack) ? static_cast<uint32_t>(one_of(1, 2, 0xfffffffe)) : 0;
  event.range.sizes = chance() % 4 ? 0 : name;
  if (event.flags & kHasColor) event.range.color = static_cast<uint32_t>(one_of(0xff00ff00, 3));
  if (event.flags & kHasInputs) event.range.types = event.range.strides = name;
  bool is_op = event.flags & kHasLabel && event.source == static_cast<uint8_t>(Source::kItt);
  if (is_op) event.range.parent = one_of(0, chance() % 1000, kUsersParent | 7, 5ull << 32 | 9);
  return event;
}

}  // namespace

int main(int, char** argv) {
  std::string path, error;
  if (!start(argv[1], Producer::kRecord, &path, &error)) return std::puts(error.c_str()), 1;
  auto seed = std::strtoull(argv[3], nullptr, 10);
  std::mt19937_64 chance(seed);
  std::vector<Open> open;
  // What a duration has in its upper and in its lower half.
  const int64_t lasts[] = {0,
                           1,
                           1000,
                           0xfffffffe,
                           0xffffffff,
                           0x100000000,
                           0x1fffffffe,
                           90'000'000'000,
                           0xfffeffffffff,
                           0xffff00000000,
                           0x7000000000000000};
  int64_t now = 1'000'000'000;
  for (int left = std::atoi(argv[2]); left > 0; --left) {
    Log* log = opspan::capture::log();
    Event event = made(chance, log->intern("a name"), now += 10, seed % 2 ? Source::kNvtx : Source::kItt);
    Place place = log->append(event);
    int64_t end_ns = chance() % 50 ? now + lasts[chance() % std::size(lasts)] : 0;
    // A duration whose lower half would be 0 is a nanosecond more: 0 is a range that is open.
    int64_t more = place.start_ns && end_ns && static_cast<uint32_t>(end_ns - now + 1) == 0;
    bool is_range = event.kind == static_cast<uint8_t>(Unit::kRange);
    std::printf("%llu %lld %lld %u %u %lld %llu %u %u %u %u %u\n", (unsigned long long)place.number, (long long)now,
                (long long)(is_range ? end_ns + more : 0), event.source, event.flags, (long long)event.range.value,
                (unsigned long long)event.range.id, event.range.category, event.range.forward_tid, event.range.sizes,
                event.range.color, event.range.schema);
    if (chance() % 8 == 0) {
      Event memory{};
      memory.kind = static_cast<uint8_t>(Unit::kMemory);
      memory.source = static_cast<uint8_t>(Source::kTorch);
      memory.flags = chance() % 3;
      memory.memory.time_ns = now;
      memory.memory.address = chance() >> (chance() % 3 ? 16 : 0);
      memory.memory.bytes = static_cast<int64_t>(chance() >> 1);
      memory.memory.total = -static_cast<int64_t>(chance() >> 1);
      memory.memory.device_index = chance() % 4 ? -1 : 0;
      log->append(memory);
      std::printf("%u %lld %llu %lld %lld %d\n", memory.flags, (long long)now,
                  (unsigned long long)memory.memory.address, (long long)memory.memory.bytes,
                  (long long)memory.memory.total, memory.memory.device_index);
    }
    if (is_range) open.push_back({place, end_ns});
    // Some end at once, others when they are in an old chunk.
    while (!open.empty() && chance() % 1000) {
      if (open.back().end_ns) end_range(open.back().place, open.back().end_ns);
      if (!open.back().end_ns) give_up_range(open.back().place);
      open.pop_back();
      if (chance() % 2) break;
    }
  }
  for (const Open& one : open) {
    if (one.end_ns) end_range(one.place, one.end_ns);
  }
  return stop() ? 1 : 0;
}
