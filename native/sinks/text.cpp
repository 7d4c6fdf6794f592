#include "sinks/text.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>

namespace opspan::text {
namespace {

template <class Number>
void append_any(std::string& out, Number value) {
  char digits[24];
  out.append(digits, std::to_chars(digits, digits + sizeof(digits), value).ptr);
}

// Words are read with care for their end: a bad count must not become a bad read.
struct Words {
  const int64_t* next;
  const int64_t* end;
  bool any() const { return next < end; }
  int64_t take() { return next < end ? *next++ : int64_t{OPSPAN_SIZES_NONE}; }
};

// `2, 4]`
void append_dimensions(std::string& out, Words& words, int64_t rank) {
  for (int64_t i = 0; i < rank && words.any(); ++i) {
    if (i) out += ", ";
    append_any(out, words.take());
  }
  out += ']';
}

double real_of(int64_t word) {
  double value;
  std::memcpy(&value, &word, sizeof(value));
  return value;
}

// As Python writes it: 1.0, 1e-05, inf.
void append_real(std::string& out, double value) {
  char digits[32];
  char* end = std::to_chars(digits, digits + sizeof(digits), value).ptr;
  out.append(digits, end);
  if (std::isfinite(value) && std::find_if(digits, end, [](char c) { return c == '.' || c == 'e'; }) == end) {
    out += ".0";
  }
}

void append_value(std::string& out, Words& words) {
  auto quoted = [&](auto&& write) {
    out += '"';
    write();
    out += '"';
  };
  switch (words.take()) {
    case OPSPAN_VALUE_INT:
      return append_any(out, words.take());
    case OPSPAN_VALUE_BOOL:
      out += words.take() ? "true" : "false";
      return;
    case OPSPAN_VALUE_REAL: {
      double value = real_of(words.take());
      if (std::isfinite(value)) return append_real(out, value);
      return quoted([&] { append_real(out, value); });
    }
    case OPSPAN_VALUE_COMPLEX:
      return quoted([&] {
        append_real(out, real_of(words.take()));
        size_t before = out.size();
        append_real(out, real_of(words.take()));
        if (out[before] != '-') out.insert(before, 1, '+');
        out += 'j';
      });
    case OPSPAN_VALUE_LIST: {
      int64_t items = words.take();
      out += '[';
      for (int64_t i = 0; i < items && words.any(); ++i) {
        if (i) out += ", ";
        append_value(out, words);
      }
      out += ']';
      return;
    }
    default:
      out += "null";
  }
}

}  // namespace

void append_number(std::string& out, int64_t value) { append_any(out, value); }
void append_number(std::string& out, uint64_t value) { append_any(out, value); }

void append_sizes(std::string& out, const int64_t* start, size_t count) {
  Words words{start, start + count};
  out += '[';
  for (bool first = true; words.any(); first = false) {
    if (!first) out += ", ";
    out += '[';
    int64_t head = words.take();
    if (head == OPSPAN_SIZES_LIST) {
      int64_t items = words.take();
      for (int64_t i = 0; i < items && words.any(); ++i) {
        if (i) out += ", ";
        out += '[';
        append_dimensions(out, words, words.take());
      }
      out += ']';
    } else {
      append_dimensions(out, words, head);
    }
  }
  out += ']';
}

void append_types(std::string& out, const int64_t* words, size_t count) {
  out += '[';
  for (size_t i = 0; i < count; ++i) {
    out += i ? ", \"" : "\"";
    out += reinterpret_cast<const char*>(words[i]);
    out += '"';
  }
  out += ']';
}

void append_values(std::string& out, const int64_t* start, size_t count) {
  Words words{start, start + count};
  out += '[';
  for (bool first = true; words.any(); first = false) {
    if (!first) out += ", ";
    append_value(out, words);
  }
  out += ']';
}

void append_torch_sizes(std::string& out, const int64_t* start, size_t count) {
  if (!count) return;
  Words words{start, start + count};
  bool first = true;
  auto one = [&](int64_t rank) {
    out += first ? "[" : ", [";
    first = false;
    append_dimensions(out, words, rank);
  };
  out += ", sizes = [";
  while (words.any()) {
    int64_t head = words.take();
    if (head != OPSPAN_SIZES_LIST) {
      one(head);
      continue;
    }
    bool some = false;
    for (int64_t items = words.take(); items > 0 && words.any(); --items) {
      if (int64_t rank = words.take(); rank >= 0) {
        one(rank);
        some = true;
      }
    }
    if (!some) one(0);
  }
  out += ']';
}

ForwardThread forward_of(const Thread& here, const opspan_op& op) {
  if (op.kind != OPSPAN_KIND_BACKWARD) return {};
  uint32_t tid = forward_tid(here, op);
  return {tid != process_id(), tid};
}

void append_forward(std::string& out, ForwardThread forward) {
  if (!forward.named) return;
  out += ", fwd_tid = ";
  append_any(out, forward.tid);
}

void append_label(std::string& out, const opspan_op& op, ForwardThread forward) {
  out += name_of(op);
  if (op.sequence >= 0) {
    out += ", seq = ";
    append_any(out, op.sequence);
  }
  if (op.op_id) {
    out += ", op_id = ";
    append_any(out, op.op_id);
  }
  append_forward(out, forward);
  if (op.sizes_count) {
    out += ", sizes = ";
    append_sizes(out, op.sizes, op.sizes_count);
  }
}

void append_user_range(std::string& out, const opspan_range& range) {
  out += name_of(range);
  if (!range.detail) return;
  out += ", ";
  out += detail_key(range);
  out += " = ";
  out += range.detail;
}

}  // namespace opspan::text
