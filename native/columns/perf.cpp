// Reads the samples in a piece of the text that `perf script` prints. docs/formats/perf.md describes it.
//
//   python3  2186/2186  [001] 33329.003761001:    1001001 cpu-clock:      a header: comm, pid/tid, cpu, time, period
//   \tffffffff816cf345 do_dentry_open+0x3c5 ([kernel.kallsyms])           frames: the innermost one comes first
//   \t           3238c setlocale (/usr/lib/x86_64-linux-gnu/libc.so.6)
//
//   python3  2322 33334.140266:     250000 cpu-clock:  7f3dadd46231 init (/usr/bin/x)     a sample in one line
//
// Most stacks and nearly all frames come again, so texts of stacks are made once for each distinct stack.

#include <algorithm>
#include <deque>
#include <string>

#include "columns/columns.h"
#include "columns/interface.h"
#include "columns/perf_lines.h"

namespace opspan::columns {
namespace perf_text {

constexpr size_t kMostFrames = 4096;  // of a stack; outer frames are left out

// The distinct stacks of functions, or of libraries. A stack is a list of codes of names.
class Stacks {
 public:
  void push(std::string_view name) { stack_.push_back(names_.code(name)); }
  uint32_t take() {
    const std::string_view key(reinterpret_cast<const char*>(stack_.data()), stack_.size() * sizeof(uint32_t));
    const size_t known = stacks_.texts().size();
    const uint32_t code = stacks_.code(key);
    if (code == known) {
      keys_.push_back(std::move(stack_));
      stacks_.move(code, {reinterpret_cast<const char*>(keys_.back().data()), key.size()});
    }
    stack_.clear();
    return code;
  }
  // Returns the text of each stack: the outermost name first, with ';' between names.
  std::vector<std::string> texts() const {
    std::vector<std::string> texts;
    texts.reserve(keys_.size());
    for (const auto& key : keys_) {
      std::string& text = texts.emplace_back();
      for (size_t at = key.size(); at-- > 0;) {
        const size_t from = text.size();
        text += names_.texts()[key[at]];
        std::replace(text.begin() + static_cast<std::ptrdiff_t>(from), text.end(), ';', ',');
        if (at > 0) text += ';';
      }
    }
    return texts;
  }

 private:
  Dictionary names_, stacks_;
  std::vector<uint32_t> stack_;
  std::deque<std::vector<uint32_t>> keys_;
};

struct Samples {
  std::vector<Header> headers;
  std::vector<uint32_t> functions, libraries;
  std::vector<int64_t> left_out;  // frames of each sample
  int64_t stray = 0;              // lines that belong to no sample
  Stacks function_stacks, library_stacks;
  size_t frames = 0;
  bool is_open = false;

  void add(const Frame& frame) {
    if (frames++ >= kMostFrames) {
      ++left_out.back();
      return;
    }
    function_stacks.push(frame.function);
    library_stacks.push(frame.library);
  }
  void end() {
    if (is_open && frames > 0) {
      functions.back() = function_stacks.take();
      libraries.back() = library_stacks.take();
    }
    is_open = false;
    frames = 0;
  }
  void begin(const Header& header) {
    end();
    headers.push_back(header);
    functions.push_back(kNone);
    libraries.push_back(kNone);
    left_out.push_back(0);
    is_open = true;
    Frame frame;
    if (!read_frame(header.rest, frame)) return;
    add(frame);
    end();
  }
  void read(std::string_view line) {
    if (without_spaces(line).empty()) return end();
    Frame frame;
    Header header;
    if (is_open && line.front() == '\t') {
      read_frame(line, frame) ? add(frame) : static_cast<void>(++stray);
    } else if (read_header(line, header)) {
      begin(header);
    } else if (is_open && line.front() == ' ' && read_frame(line, frame)) {
      add(frame);
    } else if (line.front() != '#') {
      ++stray;
    }
  }
};

}  // namespace perf_text

// The last row is no sample. Its left_out is the number of lines that belong to no sample.
Output perf(const Input& piece) {
  const auto address = piece.values<int64_t>("address"), bytes = piece.values<int64_t>("bytes");
  std::string_view text(reinterpret_cast<const char*>(address[0]), static_cast<size_t>(bytes[0]));
  perf_text::Samples samples;
  while (!text.empty()) {
    const size_t size = std::min(text.find('\n'), text.size());
    samples.read(text.substr(0, size));
    text.remove_prefix(std::min(size + 1, text.size()));
  }
  samples.end();

  const size_t rows = samples.headers.size() + 1;
  Numbers pid(rows), tid(rows), cpu(rows), time(rows), weight(rows), left_out(rows);
  Dictionary comms, events;
  Codes comm(rows), event(rows), stack(rows), libraries(rows);
  for (size_t row = 0; row + 1 < rows; ++row) {
    const perf_text::Header& header = samples.headers[row];
    pid.set(row, header.pid);
    tid.set(row, header.tid);
    cpu.set(row, header.cpu);
    time.set(row, header.time_ns);
    weight.set(row, header.period);
    left_out.set(row, samples.left_out[row]);
    comm.codes[row] = comms.code(header.comm);
    event.codes[row] = events.code(header.event);
    stack.codes[row] = samples.functions[row];
    libraries.codes[row] = samples.libraries[row];
  }
  left_out.set(rows - 1, samples.stray);
  for (Codes* codes : {&comm, &event, &stack, &libraries}) codes->codes[rows - 1] = kNone;

  Output out(rows);
  const std::pair<const char*, Numbers*> numbers[] = {{"pid", &pid},      {"tid", &tid},       {"cpu", &cpu},
                                                      {"time_ns", &time}, {"weight", &weight}, {"left_out", &left_out}};
  for (const auto& [name, column] : numbers) out.add(name, std::move(column->values), &column->valid);
  out.add("comm", std::move(comm.codes), comms.texts());
  out.add("event", std::move(event.codes), events.texts());
  for (auto [name, codes, stacks] : {std::tuple{"stack", &stack, &samples.function_stacks},
                                     std::tuple{"libraries", &libraries, &samples.library_stacks}}) {
    const std::vector<std::string> texts = stacks->texts();
    out.add(name, std::move(codes->codes), {texts.begin(), texts.end()});
  }
  return out;
}

}  // namespace opspan::columns
