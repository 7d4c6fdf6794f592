// Somebody cuts the capture file, to nothing or in the middle, while threads write to it: the program must live, and
// the next session must record. Run by tools/sanitize; ends by itself with 0.
#include <dirent.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "capture/writer.h"

namespace {

using namespace opspan::capture;

constexpr int kThreads = 3;
constexpr int kSessions = 60;
std::atomic<bool> done{false};
std::atomic<long> written{0};

void record() {
  std::vector<Place> open;
  for (int i = 0; !done; ++i) {
    Log* log = opspan::capture::log();
    if (!log) continue;
    Event event{};
    event.kind = static_cast<uint8_t>(Unit::kRange);
    event.name = log->intern("name " + std::to_string(i % 5000));
    event.range.start_ns = now_ns();
    Place place = log->append(event);
    if (place) ++written;
    if (i % 7 == 0) log->attribute(place.number, event.name, AttributeType::kInt, &event.range.start_ns, 1);
    open.push_back(place);
    if (open.size() > 3000) {  // some end in chunks that are long full
      for (const Place& each : open) end_range(each, now_ns());
      open.clear();
    }
  }
}

long pages_of(const std::string& path) {
  FILE* file = fopen(path.c_str(), "rb");
  if (!file || fseek(file, 0, SEEK_END) != 0) return 0;
  long size = ftell(file);
  fclose(file);
  return size / 4096;
}

}  // namespace

int main() {
  char folder[] = "/tmp/opspan-stress-XXXXXX";
  if (!mkdtemp(folder)) return 2;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) threads.emplace_back(record);
  int failed = 0;
  for (int i = 0; i < kSessions; ++i) {
    std::string path, error;
    if (!start(folder, Producer::kRecord, &path, &error)) ++failed;
    long before = written;
    usleep(3000);
    for (int waited = 0; written == before && waited < 1000; ++waited) usleep(1000);
    if (written == before) ++failed;  // the one before was cut: this one records
    if (truncate(path.c_str(), i % 3 ? 4096 * (pages_of(path) * (i % 5) / 5) + i % 2 * 100 : 0) != 0) ++failed;
    usleep(2000);
    if (i % 4 == 0 && unlink(path.c_str()) != 0) ++failed;
    usleep(1000);
    stop();
    unlink(path.c_str());
  }
  done = true;
  for (std::thread& thread : threads) thread.join();
  rmdir(folder);
  printf("%ld ranges in %d sessions that were cut\n", written.load(), kSessions);
  return failed;
}
