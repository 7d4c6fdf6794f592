#include "sinks/text.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

namespace opspan::text {
namespace {

template <class Number>
void append_any(std::string& out, Number value) {
  char digits[24];
  out.append(digits, std::to_chars(digits, digits + sizeof(digits), value).ptr);
}

// An array of words. Each read checks for the end of the array, because a wrong count must not lead to a read out of
// bounds.
struct Words {
  const int64_t* next;
  const int64_t* end;
  bool has_more() const { return next < end; }
  int64_t take() { return next < end ? *next++ : 0; }
};

// The words of an argument, or of an item of a list.
struct Group {
  explicit Group(Words& words) : head(static_cast<uint64_t>(words.take())) {
    if (!is(OPSPAN_INPUT_TENSOR)) return;
    sizes = {words.next, words.next + std::min<int64_t>(count(), words.end - words.next)};
    words.next = sizes.end;
    strides = {words.next, words.next};
    if (!has(OPSPAN_STRIDES_FOLLOW)) return;
    strides.end += std::min<int64_t>(count(), words.end - words.next);
    words.next = strides.end;
  }
  bool is(uint64_t what) const { return (head & 15) == what; }
  bool has(uint64_t steps) const { return (head >> 4 & 15) == steps; }
  uint64_t type() const { return head >> 8 & 0xffffff; }
  int64_t count() const { return static_cast<int64_t>(head >> 32); }

  uint64_t head;
  Words sizes = {};
  Words strides = {};
};

// Calls list(group, items) for each list, and one(group) for each other argument. items(f) calls f for each item of the
// list.
template <class One, class List>
void for_each_group(const int64_t* start, size_t count, One&& one, List&& list) {
  Words words{start, start + count};
  while (words.has_more()) {
    Group group(words);
    if (!group.is(OPSPAN_INPUT_LIST)) {
      one(group);
      continue;
    }
    list(group, [&](auto&& item) {
      for (int64_t i = 0; i < group.count() && words.has_more(); ++i) item(Group(words));
    });
  }
}

// Appends `[2, 4]`.
void append_list(std::string& out, Words words) {
  out += '[';
  for (bool first = true; words.has_more(); first = false) {
    if (!first) out += ", ";
    append_any(out, words.take());
  }
  out += ']';
}

void append_steps(std::string& out, const Group& group) {
  if (!group.has(OPSPAN_STRIDES_USUAL)) return append_list(out, group.strides);
  std::vector<int64_t> steps(group.sizes.next, group.sizes.end);
  int64_t step = 1;
  for (auto at = steps.rbegin(); at != steps.rend(); ++at) step *= std::max<int64_t>(std::exchange(*at, step), 1);
  append_list(out, {steps.data(), steps.data() + steps.size()});
}

// Appends `[[2, 4], [[2], [3]], []]`. `one` appends each tensor. If `is_one` is true for a list, `one` appends the
// whole list.
template <class IsOne, class One>
void append_groups(std::string& out, const int64_t* start, size_t count, IsOne&& is_one, One&& one) {
  bool first = true;
  auto separate = [&] {
    if (!first) out += ", ";
    first = false;
  };
  out += '[';
  for_each_group(
      start, count, [&](const Group& group) { separate(), one(group); },
      [&](const Group& list, auto&& items) {
        separate();
        if (is_one(list)) return one(list), items([](const Group&) {});
        out += '[';
        first = true;
        items([&](const Group& item) { separate(), one(item); });
        first = false;
        out += ']';
      });
  out += ']';
}

double real_of(int64_t word) {
  double value;
  std::memcpy(&value, &word, sizeof(value));
  return value;
}

// Appends a number as Python writes it: 1.0, 1e-05, inf.
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
      for (int64_t i = 0; i < items && words.has_more(); ++i) {
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

void append_sizes(std::string& out, const int64_t* words, size_t count) {
  auto is_one = [](const Group&) { return false; };
  append_groups(out, words, count, is_one, [&](const Group& group) { append_list(out, group.sizes); });
}

void append_strides(std::string& out, const int64_t* words, size_t count) {
  auto is_one = [](const Group& list) { return list.type() != OPSPAN_TYPE_TENSOR_LIST; };
  append_groups(out, words, count, is_one, [&](const Group& group) { append_steps(out, group); });
}

void append_types(std::string& out, const int64_t* words, size_t count, const char* const* names) {
  bool first = true;
  auto one = [&](const Group& group) {
    out += first ? "\"" : ", \"";
    first = false;
    out += names[group.type()];
    out += '"';
  };
  out += '[';
  for_each_group(words, count, one, [&](const Group& list, auto&& items) {
    one(list);
    items([](const Group&) {});
  });
  out += ']';
}

void append_values(std::string& out, const int64_t* start, size_t count) {
  Words words{start, start + count};
  out += '[';
  for (bool first = true; words.has_more(); first = false) {
    if (!first) out += ", ";
    append_value(out, words);
  }
  out += ']';
}

void append_torch_sizes(std::string& out, const int64_t* words, size_t count) {
  if (!count) return;
  bool first = true;
  auto one = [&](const Group& group) {
    if (!first) out += ", ";
    first = false;
    append_list(out, group.sizes);
  };
  out += ", sizes = [";
  for_each_group(words, count, one, [&](const Group& list, auto&& items) {
    bool has_tensor = false;
    items([&](const Group& item) {
      if (!item.is(OPSPAN_INPUT_TENSOR)) return;
      one(item);
      has_tensor = true;
    });
    if (!has_tensor) one(list);
  });
  out += ']';
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
  if (op.inputs_count) {
    out += ", sizes = ";
    append_sizes(out, op.inputs, op.inputs_count);
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
