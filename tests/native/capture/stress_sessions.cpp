// Threads record without pause while sessions start and stop around them, ranges are ended by other threads than began
// them, threads come and go, and the process forks. Run by tools/sanitize; ends by itself with 0.
#include <dirent.h>
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

constexpr int kThreads = 4;
constexpr int kSessions = 200;

std::atomic<bool> done{false};
std::atomic<long> written{0};
std::mutex handover;
std::vector<Place> handed;
Constant constant{"a constant"};

Event range(Log& log, int i) {
  Event event{};
  event.kind = static_cast<uint8_t>(Unit::kRange);
  event.source = static_cast<uint8_t>(i % 4 ? Source::kTorch : Source::kUser);  // short ones, and whole ones
  event.name = i % 3 ? log.intern("name " + std::to_string(i % 1500)) : log.intern(constant);
  event.range.start_ns = now_ns();
  return event;
}

void record(int thread) {
  std::vector<Place> open;
  for (int i = 0; !done; ++i) {
    if (Log* log = opspan::capture::log()) {
      Place place = log->append(range(*log, i));
      if (place) ++written;
      int64_t values[7] = {i, 2, 3, 4, 5, 6, 7};
      if (i % 16 == 0 && place) log->attribute(place.number, 0, AttributeType::kInt, values, 7);
      if (i % 32 == 0) log->blob(place, values, sizeof(values));
      if (i % 64 == 0) {
        std::lock_guard lock(handover);
        if (!handed.empty() && handed.back().tid != place.tid) {
          end_range(handed.back(), now_ns());
          handed.pop_back();
        }
        if (handed.size() < 100) handed.push_back(place);
      }
      open.push_back(place);
    }
    // Some ranges stay open over many chunks, some over a whole session.
    if (open.size() > (i % 4096 ? 50u : 0u)) {
      end_range(open.back(), now_ns());
      open.pop_back();
    }
    if (thread == 0 && i % 1000 == 0) std::thread([] { end_range(Place{}, now_ns()); }).join();
    if (thread == 1 && i % 1000 == 0) {
      std::thread([i] {
        if (Log* log = opspan::capture::log()) end_range(log->append(range(*log, i)), now_ns());
      }).join();
    }
  }
  for (const Place& place : open) give_up_range(place);
}

void empty(const std::string& folder) {
  DIR* dir = opendir(folder.c_str());
  while (dirent* entry = readdir(dir)) {
    if (entry->d_name[0] != '.') unlink((folder + "/" + entry->d_name).c_str());
  }
  closedir(dir);
}

bool fork_once() {
  return good_in_fork([] {
    bool good = true;
    for (int i = 0; i < 3000; ++i) {
      Log* log = opspan::capture::log();
      if (log) end_range(log->append(range(*log, i)), now_ns());
      good = good && log;
    }
    return good;
  });
}

}  // namespace

int main() {
  char folder[] = "/tmp/opspan-stress-XXXXXX";
  if (!mkdtemp(folder)) return 2;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) threads.emplace_back(record, i);
  int failed = 0;
  for (int i = 0; i < kSessions; ++i) {
    std::string path;
    std::string error;
    if (!start(folder, Producer::kRecord, &path, &error)) {
      fprintf(stderr, "%s\n", error.c_str());
      ++failed;
    }
    std::string second;
    if (start(folder, Producer::kRecord, &path, &second)) ++failed;  // one at a time
    usleep(5000);
    if (kForks && i % 10 == 0 && !fork_once()) ++failed;
    stop();
    if (i % 10 == 0) empty(folder);
  }
  done = true;
  for (std::thread& thread : threads) thread.join();
  empty(folder);
  rmdir(folder);
  printf("%ld ranges in %d sessions\n", written.load(), kSessions);
  return failed || written == 0;
}
