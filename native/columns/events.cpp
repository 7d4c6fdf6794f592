// Reads a piece (any part of the bytes) of a Chrome trace (JSON) into columns. Each event and each other item of the
// file becomes a row.
//
//   { "schemaVersion": 1, ..., "traceEvents": [ {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 7, "tid": 7,
//     "ts": 1712195495519689.047, "dur": 63.813, "args": {"External id": 2049, "Input Dims": [[2, 3], [3, 4]]}}, ... ]
//     }
//
// The file may also be just an array of events, and the array need not be closed. A piece may end anywhere. Each row
// has the offset at which its item ended, and the reader's State there. The caller passes this State and the bytes from
// that offset on to the next call. If an event cannot be read, the reader skips to what looks like the beginning of
// another event.

#include <algorithm>

#include "columns/event.h"
#include "columns/interface.h"

namespace opspan::columns {
namespace {

// opspan.formats.chrome has the same numbers.
enum State : uint8_t { kStart, kMembers, kEvents, kBareEvents, kDone };
enum RowKind : uint8_t { kEvent, kMember, kStructure, kSkipped, kEndMissing };

// After an event that could not be read, its bytes are searched for other events. So bytes are read again: at most
// kReadAgain times the size of the piece, or kAlwaysReadAgain if that is more. Without a limit, if many events were
// nested and none of them ended, each would be read to the end of the file.
constexpr size_t kReadAgain = 4, kAlwaysReadAgain = 32 << 20;
constexpr size_t kLeastBytes = 16;  // the fewest bytes that an event with a member can have
constexpr std::string_view kSpace = " \t\r\n";

// Returns the position of the next text that looks like an event. Returns nothing if these bytes have none.
std::optional<size_t> next_event(std::string_view bytes, size_t from) {
  constexpr std::string_view kKeys[] = {"ph", "cat", "name", "pid", "tid", "ts", "id", "dur", "args", "s", "bp"};
  for (size_t at = bytes.find('{', from); at != std::string_view::npos; at = bytes.find('{', at + 1)) {
    const size_t before = at == 0 ? std::string_view::npos : bytes.find_last_not_of(kSpace, at - 1);
    if (before == std::string_view::npos || (bytes[before] != ',' && bytes[before] != '[')) continue;
    const size_t quoted = bytes.find_first_not_of(kSpace, at + 1);
    if (quoted == std::string_view::npos || bytes[quoted] != '"') continue;
    const size_t closed = bytes.find('"', quoted + 1);
    if (closed == std::string_view::npos) return {};
    const std::string_view key = bytes.substr(quoted + 1, closed - quoted - 1);
    if (std::find(std::begin(kKeys), std::end(kKeys), key) != std::end(kKeys)) return at;
  }
  return {};
}

// Returns the most rows that one call reads. Memory is allocated for all of them.
size_t most_rows(std::string_view bytes, State state) {
  const bool is_among_events = state == kEvents || state == kBareEvents;
  if (!is_among_events) return bytes.size() / kLeastBytes + 2;
  constexpr size_t kOthers = 64;  // limit of the rows that are not events; they mostly follow the last event
  size_t braces = 0;              // number of {; find() is fast, because only about one byte in a hundred is a brace
  for (size_t at = bytes.find('{'); at != std::string_view::npos; at = bytes.find('{', at + 1)) ++braces;
  return braces + kOthers;
}

class Piece {
 public:
  Piece(std::string_view bytes, const Input& wanted, State state, bool is_last)
      : bytes_(bytes),
        json_(bytes),
        state_(state),
        is_last_(is_last),
        most_rows_(most_rows(bytes, state)),
        kinds_(zeroed<uint8_t>(most_rows_)),
        states_(zeroed<uint8_t>(most_rows_)),
        end_(zeroed<int64_t>(most_rows_)),
        is_damaged_(most_rows_),
        columns_(wanted, most_rows_) {}

  void read() {
    while (rows_ < most_rows_ && state_ != kDone && item()) {
    }
    // Skips everything after the end of the trace. If it is more than spaces and commas, it becomes a row.
    if (state_ != kDone || rows_ == most_rows_) return;
    if (bytes_.find_first_not_of(" \t\r\n,", json_.offset()) != std::string_view::npos) skip_all(kSkipped);
  }

  Output result() {
    Output out(rows_);
    out.add("what", std::move(kinds_), nullptr);
    out.add("state", std::move(states_), nullptr);
    out.add("end", std::move(end_), nullptr);
    out.add("is_damaged", std::move(is_damaged_));
    columns_.give(rows_, out);
    return out;
  }

 private:
  void row(RowKind kind) {
    kinds_[rows_] = kind;
    states_[rows_] = state_;
    end_[rows_] = static_cast<int64_t>(json_.offset());
    ++rows_;
  }

  void skip_all(RowKind kind) {
    json_.go_to(bytes_.size());
    state_ = kDone;
    row(kind);
  }

  // Reads one item of the file into a row. Returns false if the bytes end before the item does.
  bool item() {
    const size_t from = json_.offset();
    try {
      switch (state_) {
        case kStart:
          start();
          break;
        case kMembers:
          member();
          break;
        default:
          event();
      }
    } catch (Cut) {
      if (is_last_) {
        skip_all(kEndMissing);
        return true;
      }
      json_.go_to(from);
      return false;
    } catch (Bad) {
      skip_all(kSkipped);
    }
    return true;
  }

  void start() {
    constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
    if (bytes_.starts_with(kByteOrderMark)) json_.go_to(kByteOrderMark.size());
    const char first = json_.peek();
    if (first != '{' && first != '[') throw Bad();
    json_.take();
    state_ = first == '{' ? kMembers : kBareEvents;
    row(kStructure);
  }

  void member() {
    if (json_.peek_item() == '}') {
      json_.take();
      state_ = kDone;
      row(kStructure);
      return;
    }
    const Json::String key = json_.string();
    json_.expect(':');
    if (json_.peek() == '[' && key.raw == "traceEvents") {
      json_.take();
      state_ = kEvents;
      row(kStructure);
      return;
    }
    value_.clear();
    json_.copy_value(value_);
    columns_.member(rows_, key, value_);
    row(kMember);
  }

  void event() {
    if (json_.peek_item() == ']') {
      json_.take();
      state_ = state_ == kEvents ? kMembers : kDone;
      row(kStructure);
      return;
    }
    const size_t from = json_.offset();
    bool is_cut = false;
    try {
      columns_.read(json_, rows_);
      row(kEvent);
      return;
    } catch (Bad) {
    } catch (Cut) {
      if (!is_last_) {
        columns_.clear(rows_);
        throw;
      }
      is_cut = true;
    }
    read_again_ += json_.offset() - from;
    const bool may_read_again = read_again_ <= kReadAgain * bytes_.size() + kAlwaysReadAgain;
    // The fields of an event come before its args. So if only the args cannot be read, the fields are kept.
    const auto args = columns_.failed_args(rows_);
    const auto next = next_event(bytes_, may_read_again ? args.value_or(from + 1) : json_.offset());
    if (is_cut && !next) {
      columns_.clear(rows_);
      throw Cut();
    }
    if (!args) columns_.clear(rows_);
    constexpr size_t kTail = 64;  // number of bytes at the end that may be the beginning of another event
    const size_t tail = is_last_ ? 0 : std::min(kTail, bytes_.size() - from - 1);
    json_.go_to(next.value_or(bytes_.size() - tail));
    if (args) is_damaged_.set(rows_);
    row(args ? kEvent : kSkipped);
  }

  std::string_view bytes_;
  Json json_;
  State state_;
  bool is_last_;
  size_t most_rows_, rows_ = 0, read_again_ = 0;
  Array<uint8_t> kinds_, states_;
  Array<int64_t> end_;
  Bits is_damaged_;
  EventColumns columns_;
  std::string value_;
};

}  // namespace

Output events(const Input& piece, const Input& wanted, int64_t number) {
  const auto address = piece.values<int64_t>("address"), bytes = piece.values<int64_t>("bytes");
  if (piece.rows() != 1 || bytes[0] < 0) throw BadInput("expected one piece");
  const std::string_view text(reinterpret_cast<const char*>(address[0]), static_cast<size_t>(bytes[0]));
  if (number < 0 || number / 2 > kDone) throw BadInput("no such state");
  Piece reading(text, wanted, static_cast<State>(number / 2), number % 2 == 1);
  reading.read();
  return reading.result();
}

}  // namespace opspan::columns
