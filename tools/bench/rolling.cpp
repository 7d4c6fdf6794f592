// Sends nested ops with a few names and many shapes to the capture sink, like torch's observer but without any pause.
//
//   rolling LIBRARY FOLDER RANGES THREADS SHAPES KEEP_BYTES
//
// Prints the processor time per range in ns, and how many units (records of events) were lost.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <iterator>
#include <thread>
#include <vector>

#include "sinks/sinks.h"

namespace {

double processor_ns() {
  timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e9 + static_cast<double>(t.tv_nsec);
}

void work(const opspan_sink* sink, uint64_t thread, uint64_t ranges, uint64_t shapes) {
  static constexpr const char* kNames[] = {"aten::linear", "aten::addmm", "aten::mm", "aten::relu"};
  constexpr int64_t kTensor = OPSPAN_INPUT_TENSOR | int64_t{3} << 32;  // a tensor with three dimensions
  char keys[std::size(kNames)];
  for (uint64_t i = 0; i < ranges; i += std::size(kNames)) {
    for (size_t depth = 0; depth < std::size(kNames); ++depth) {
      int64_t inputs[] = {kTensor, 2, static_cast<int64_t>((i + depth) % shapes), 64};
      opspan_op op = {};
      op.name = kNames[depth];
      op.kind = OPSPAN_KIND_OP;
      op.inputs = inputs;
      op.inputs_count = std::size(inputs);
      op.sequence = static_cast<int64_t>(i);
      op.op_id = i + depth + 1;
      op.thread = thread;
      sink->begin(keys + depth, &op);
    }
    for (size_t depth = std::size(kNames); depth-- > 0;) sink->end(keys + depth, i + depth + 1, thread, nullptr, 0);
  }
}

}  // namespace

int main(int, char** argv) {
  void* library = dlopen(argv[1], RTLD_NOW);
  if (!library) return fprintf(stderr, "%s\n", dlerror()), 2;
  auto sink_of = reinterpret_cast<decltype(&opspan_sink_of)>(dlsym(library, "opspan_sink_of"));
  auto start = reinterpret_cast<decltype(&opspan_start)>(dlsym(library, "opspan_start"));
  auto stop = reinterpret_cast<decltype(&opspan_stop)>(dlsym(library, "opspan_stop"));
  uint64_t ranges = strtoull(argv[3], nullptr, 10), threads = strtoull(argv[4], nullptr, 10);
  uint64_t shapes = strtoull(argv[5], nullptr, 10);
  opspan_settings settings = {};
  settings.folder = argv[2];
  settings.keep_bytes = strtoull(argv[6], nullptr, 10);
  char said[4096];
  if (start(OPSPAN_CAPTURE, &settings, said, sizeof(said)) < 0) return fprintf(stderr, "%s\n", said), 2;
  double before = processor_ns();
  std::vector<std::thread> started;
  for (uint64_t thread = 1; thread <= threads; ++thread) {
    started.emplace_back(work, sink_of(OPSPAN_CAPTURE), thread, ranges / threads, shapes);
  }
  for (std::thread& thread : started) thread.join();
  double took = processor_ns() - before;
  opspan_stats stats;
  stop(OPSPAN_CAPTURE, &stats);
  printf("%.2f %lu\n", took / static_cast<double>(ranges), static_cast<unsigned long>(stats.lost));
}
