#include "capture/processor.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <vector>

#include "capture/startup.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace opspan::capture {
namespace {

constexpr size_t kMostName = 64;
constexpr size_t kMostPeaks = 256;                // bytes of one processor's figures
constexpr size_t kMostStored = size_t{64} << 10;  // bytes of the file with the figures of all processors
constexpr size_t kRoomForRank = 64;               // opspan.record adds its rank of torch.distributed when it ends
constexpr int kMostProcessors = 1 << 16;
constexpr std::string_view kPeaksFile = "/processor-peaks";

struct Processor {
  std::string model;
  std::string vectors;  // names of instruction sets, as Linux writes them, separated by commas
};

// Returns the text without spaces around it. Any character but a printable one of ASCII becomes a question mark.
std::string cleaned(std::string_view text, size_t most) {
  std::string out;
  for (char letter : text.substr(0, text.find('\0'))) {
    if (out.size() == most) break;
    if (letter == ' ' && (out.empty() || out.back() == ' ')) continue;
    out += letter >= ' ' && letter <= '~' ? letter : '?';
  }
  while (!out.empty() && out.back() == ' ') out.pop_back();
  return out;
}

// Returns the number at the start of the text, or -1.
int64_t number_in(std::string_view text) {
  int64_t number = -1;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && number >= 0 ? number : -1;
}

bool has_word(std::string_view text, std::string_view word) {
  for (size_t at = text.find(word); at != std::string_view::npos; at = text.find(word, at + 1)) {
    size_t end = at + word.size();
    if ((at == 0 || text[at - 1] == ' ') && (end == text.size() || text[end] == ' ')) return true;
  }
  return false;
}

// Returns the widest vectors, and types of matrices beside them. `flags` are names in the form of /proc/cpuinfo.
std::string vectors_in(std::string_view flags) {
  constexpr std::string_view kWidest[] = {"avx512f", "avx2", "avx", "sse2", "sve", "asimd"};
  constexpr std::string_view kTypes[] = {"avx512_bf16", "amx_bf16", "bf16"};
  std::string out;
  for (std::string_view name : kWidest) {
    if (!has_word(flags, name)) continue;
    out = name;
    break;
  }
  for (std::string_view name : kTypes) {
    if (has_word(flags, name)) (out += out.empty() ? "" : ",") += name;
  }
  return out;
}

// Asks the processor itself. Opening /proc/cpuinfo would let the program sleep for 10 ms with some versions of Linux,
// which measure the momentary clock rate of all processors then.
bool ask_processor([[maybe_unused]] Processor* processor) {
#if defined(__x86_64__)
  uint32_t a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid(0x80000000, &a, &b, &c, &d) || a < 0x80000004) return false;
  std::array<uint32_t, 12> brand{};
  for (uint32_t i = 0; i < 3; ++i) {
    __get_cpuid(0x80000002 + i, &brand[4 * i], &brand[4 * i + 1], &brand[4 * i + 2], &brand[4 * i + 3]);
  }
  processor->model = cleaned({reinterpret_cast<const char*>(brand.data()), sizeof(brand)}, kMostName);
  std::string flags = "sse2";
  uint32_t kept_low = 0;  // the registers that the operating system keeps for each thread
  if (__get_cpuid(1, &a, &b, &c, &d) && (c & bit_OSXSAVE)) {
    [[maybe_unused]] uint32_t high;
    __asm__("xgetbv" : "=a"(kept_low), "=d"(high) : "c"(0));
  }
  const bool has_avx = (kept_low & 0x6) == 0x6 && (c & bit_AVX);
  if (has_avx) flags += " avx";
  if (has_avx && __get_cpuid_count(7, 0, &a, &b, &c, &d)) {
    const uint32_t subleaves = a;
    const bool has_512 = (kept_low & 0xe6) == 0xe6 && (b & (1u << 16));
    if (b & (1u << 5)) flags += " avx2";
    if (has_512) flags += " avx512f";
    if ((kept_low & 0x60000) == 0x60000 && (d & (1u << 22))) flags += " amx_bf16";
    if (has_512 && subleaves >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & (1u << 5)))
      flags += " avx512_bf16";
  }
  processor->vectors = vectors_in(flags);
  return true;
#else
  return false;
#endif
}

// Reads the first processor of a text such as
//   model name      : Intel(R) Xeon(R) Platinum 8259CL CPU @ 2.50GHz
//   flags           : fpu vme sse2 avx avx512f
// ARM has no name of a model there, but `CPU implementer : 0x41`, `CPU part : 0xd0c` and `Features : fp asimd`.
void read_cpuinfo(std::string_view text, Processor* processor) {
  std::string implementer, part;
  for (size_t at = 0, end; at < text.size(); at = end + 1) {
    end = std::min(text.find('\n', at), text.size());
    std::string_view line = text.substr(at, end - at);
    if (line.empty() && !processor->vectors.empty()) break;
    size_t colon = line.find(':');
    if (colon == std::string_view::npos) continue;
    std::string_view name = line.substr(0, line.find_last_not_of(" \t", colon - (colon ? 1 : 0)) + 1);
    std::string_view value = line.substr(colon + 1);
    if (name == "model name") processor->model = cleaned(value, kMostName);
    if (name == "CPU implementer") implementer = cleaned(value, 8);
    if (name == "CPU part") part = cleaned(value, 8);
    if (name == "flags" || name == "Features") processor->vectors = vectors_in(value);
  }
  if (processor->model.empty() && !implementer.empty() && !part.empty()) {
    processor->model = "implementer " + implementer + ", part " + part;
  }
}

// Returns the numbers of the processors that the process may use.
std::vector<int> usable_processors() {
  std::vector<int> out;
  for (int most = 1024; most <= kMostProcessors; most *= 4) {
    std::vector<unsigned long> words(static_cast<size_t>(most) / (8 * sizeof(unsigned long)));
    auto* set = reinterpret_cast<cpu_set_t*>(words.data());
    const size_t bytes = words.size() * sizeof(unsigned long);
    if (sched_getaffinity(getpid(), bytes, set) != 0) continue;  // it has more processors than that
    for (int cpu = 0; cpu < most; ++cpu) {
      if (CPU_ISSET_S(cpu, bytes, set)) out.push_back(cpu);
    }
    break;
  }
  return out;
}

// Returns how many cores the processors belong to, or 0 if that is unknown. A core's file lists its processors: "0,64".
size_t count_cores(const std::vector<int>& processors, const std::string& folder) {
  std::vector<bool> seen(kMostProcessors);
  size_t cores = 0;
  for (int cpu : processors) {
    if (seen[static_cast<size_t>(cpu)]) continue;
    std::string text = read_start(folder + "/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list", 512);
    bool is_listed = false;
    for (size_t at = 0; at < text.size();) {
      const size_t end = std::min(text.find(',', at), text.size());
      const std::string_view part = std::string_view(text).substr(at, end - at);
      const int64_t first = number_in(part);
      const size_t dash = part.find('-');
      const int64_t last = dash == std::string_view::npos ? first : number_in(part.substr(dash + 1));
      if (first < 0 || last < first || last >= kMostProcessors) return 0;
      is_listed |= first <= cpu && cpu <= last;
      for (int64_t i = first; i <= last; ++i) seen[static_cast<size_t>(i)] = true;
      at = end + 1;
    }
    if (!is_listed) return 0;
    ++cores;
  }
  return cores;
}

void add(std::string* out, std::string_view name, std::string_view value) {
  if (value.empty()) return;
  ((*out += name) += '=') += value;
  *out += '\0';
}

void add_number(std::string* out, std::string_view name, int64_t value) {
  if (value > 0) add(out, name, std::to_string(value));
}

// Returns the value of an entry in a list of NAME=value, each ended by NUL.
std::string_view value_of(std::string_view entries, std::string_view name) {
  for (size_t at = 0, end; at < entries.size(); at = end + 1) {
    end = std::min(entries.find('\0', at), entries.size());
    std::string_view entry = entries.substr(at, end - at);
    if (entry.size() > name.size() && entry.starts_with(name) && entry[name.size()] == '=') {
      return entry.substr(name.size() + 1);
    }
  }
  return {};
}

// Returns the path of the file with figures. private_files.py chooses the same folder.
std::string peaks_path(std::string_view variables) {
  if (auto folder = value_of(variables, "OPSPAN_CACHE_DIR"); !folder.empty()) {
    return std::string(folder).append(kPeaksFile);
  }
  if (auto base = value_of(variables, "XDG_CACHE_HOME"); !base.empty()) {
    return std::string(base).append("/opspan").append(kPeaksFile);
  }
  if (auto home = value_of(variables, "HOME"); !home.empty()) {
    return std::string(home).append("/.cache/opspan").append(kPeaksFile);
  }
  return "";
}

// Returns the content of a file that only this user and root can change; "" for any other file.
std::string read_own(const std::string& path) {
  if (path.empty()) return "";
  int fd = ::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return "";
  struct stat status;
  std::string text;
  if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && (status.st_uid == 0 || status.st_uid == geteuid()) &&
      !(status.st_mode & (S_IWGRP | S_IWOTH)) && static_cast<uint64_t>(status.st_size) <= kMostStored) {
    text = read_some(fd, kMostStored);
  }
  ::close(fd);
  return text;
}

// Returns the entry with the figures that were measured for this processor, or "".
std::string measured_peaks(std::string_view processor, std::string_view variables) {
  const std::string_view model = value_of(processor, "PROCESSOR");
  if (model.empty()) return "";
  // A line of the file: the model, cores and processors, and the figures, separated by tabs.
  std::string key = "\n";
  for (std::string_view name : {"PROCESSOR", "PROCESSOR_CORES", "PROCESSOR_THREADS"}) {
    (key += value_of(processor, name)) += '\t';
  }
  const std::string text = "\n" + read_own(peaks_path(variables));
  const size_t at = text.find(key);
  if (at == std::string::npos) return "";
  const size_t begin = at + key.size();
  const size_t end = text.find('\n', begin);
  if (end == std::string::npos || end - begin > kMostPeaks) return "";
  std::string out;
  add(&out, "PROCESSOR_PEAKS", cleaned(std::string_view(text).substr(begin, end - begin), kMostPeaks));
  return out;
}

}  // namespace

std::string describe_processor(const std::string& root) {
  Processor processor;
  if (!root.empty() || !ask_processor(&processor)) {
    read_cpuinfo(read_start(root + "/proc/cpuinfo", size_t{16} << 10), &processor);
  }
  const std::string folder = root + "/sys/devices/system/cpu";
  const std::vector<int> usable = usable_processors();
  std::string out;
  add(&out, "PROCESSOR", processor.model);
  add_number(&out, "PROCESSOR_CORES", static_cast<int64_t>(count_cores(usable, folder)));
  add_number(&out, "PROCESSOR_THREADS", static_cast<int64_t>(usable.size()));
  if (!usable.empty()) {
    const std::string khz = read_start(folder + "/cpu" + std::to_string(usable[0]) + "/cpufreq/cpuinfo_max_freq", 32);
    const int64_t number = number_in(khz);
    if (number < int64_t{1} << 40) add_number(&out, "PROCESSOR_MAX_HZ", number * 1000);
  }
  add(&out, "PROCESSOR_VECTORS", processor.vectors);
  return out;
}

std::string processor_with_peaks(std::string_view variables) {
  std::string entries = describe_processor();
  return entries + measured_peaks(entries, variables);
}

void copy_processor(std::string_view entries, char* out, size_t size) {
  size_t used = 0;
  for (size_t at = 0, end; (end = entries.find('\0', at)) != std::string_view::npos; at = end + 1) {
    if (used + (end - at) + kRoomForRank > size) break;
    std::memcpy(out + used, entries.data() + at, end - at);
    used += end - at + 1;
  }
}

}  // namespace opspan::capture
