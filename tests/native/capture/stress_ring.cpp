// Threads record without pause into a ring of files that begins a new one all the time, is held, stopped and started
// anew, while ranges stay open over several files and are ended by other threads. Run by tools/sanitize; ends by itself
// with 0.
#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "capture/writer.h"
#include "forks.h"

namespace {

using namespace opspan::capture;

constexpr int kThreads = 3;
constexpr int kRecordings = 10;
constexpr KeepLimits kKeep[] = {{0, 4 << 20, 0}, {20'000'000, 0, 0}, {0, 0, 16}, {50'000'000, 8 << 20, 100}};

std::atomic<bool> done{false};
std::atomic<bool> holds{false};  // not where it is checked how much is kept
std::atomic<long> written{0};
std::mutex handover;
std::vector<Place> handed;
Constant constant{"a constant"};

void record(int thread) {
  std::vector<Place> open;
  for (int i = 0; !done; ++i) {
    if (Log* log = opspan::capture::log()) {
      Event event{};
      event.kind = static_cast<uint8_t>(Unit::kRange);
      event.source = static_cast<uint8_t>(i % 4 ? Source::kTorch : Source::kUser);  // short ones, and whole ones
      event.name = i % 3 ? log->intern("name " + std::to_string(i % 1500)) : log->intern(constant);
      event.range.start_ns = log->now();
      Place place = log->append(event);
      if (place) ++written;
      if (i % 64 == 0) {
        std::lock_guard lock(handover);
        if (!handed.empty() && handed.back().tid != place.tid) {
          end_range(handed.back());
          handed.pop_back();
        }
        if (handed.size() < 100) handed.push_back(place);
      }
      open.push_back(place);
    }
    // Some ranges stay open over many files.
    if (open.size() > (i % 40960 ? 50u : 0u)) {
      end_range(open.back());
      open.pop_back();
    }
    if (thread == 0 && i % 1000 == 0) step(0);
    if (thread == 1 && i % 3000 == 0 && holds) {
      hold(0, true);
      std::thread([] {
        if (Log* log = opspan::capture::log()) log->intern("of a thread that ends");
      }).join();
      hold(0, false);
    }
  }
  for (const Place& place : open) give_up_range(place);
}

uint64_t bytes_in(const std::string& folder, bool remove) {
  uint64_t bytes = 0;
  DIR* dir = opendir(folder.c_str());
  while (dirent* entry = readdir(dir)) {
    std::string path = folder + "/" + entry->d_name;
    struct stat status;
    if (entry->d_name[0] == '.' || stat(path.c_str(), &status) != 0) continue;
    bytes += static_cast<uint64_t>(status.st_size);
    if (remove) unlink(path.c_str());
  }
  closedir(dir);
  return bytes;
}

// It keeps nothing, and takes nothing away.
bool fork_once() {
  return good_in_fork([] {
    step(0);
    return !opspan::capture::log();
  });
}

}  // namespace

int main() {
  char folder[] = "/tmp/opspan-stress-XXXXXX";
  if (!mkdtemp(folder)) return 2;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) threads.emplace_back(record, i);
  int failed = 0;
  for (int i = 0; i < kRecordings; ++i) {
    const KeepLimits& limits = kKeep[i % std::size(kKeep)];
    std::string path;
    std::string error;
    if (!start(folder, Producer::kRecord, &path, &error, 0, limits)) {
      fprintf(stderr, "%s\n", error.c_str());
      ++failed;
    }
    holds = !limits.bytes;
    usleep(200'000);
    holds = false;
    usleep(200'000);
    if (kForks && !fork_once()) ++failed;
    stop();
    uint64_t bytes = bytes_in(folder, true);
    if (limits.bytes && bytes > limits.bytes * 3 / 2) {
      fprintf(stderr, "%lu bytes are kept of %lu\n", bytes, limits.bytes);
      ++failed;
    }
  }
  done = true;
  for (std::thread& thread : threads) thread.join();
  bytes_in(folder, true);
  rmdir(folder);
  printf("%ld ranges in %d recordings\n", written.load(), kRecordings);
  return failed || written == 0;
}
