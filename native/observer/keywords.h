// Writes the keyword values of a range as a JSON object.
#pragma once

#include <ATen/core/ivalue.h>

#include <cmath>
#include <iomanip>
#include <locale>
#include <map>
#include <sstream>
#include <string>
#include <unordered_map>

namespace opspan {

inline void append_json(std::string& out, const std::string& text) {
  out += '"';
  for (char letter : text) {
    if (letter == '"' || letter == '\\') out += '\\';
    if (static_cast<unsigned char>(letter) >= 0x20) {
      out += letter;
      continue;
    }
    constexpr char kDigits[] = "0123456789abcdef";
    out.append("\\u00").append(1, kDigits[letter >> 4]).append(1, kDigits[letter & 15]);
  }
  out += '"';
}

// Returns the shortest text with 15, 16 or 17 digits from which the number can be read back. std::to_chars is not used:
// it needs libstdc++ 11 where the observer runs, but torch does not.
inline std::string shortest(double value) {
  std::string text;
  for (int digits = 15; digits <= 17; ++digits) {
    std::stringstream stream(std::ios::in | std::ios::out);  // the constructor without arguments is newer
    stream.imbue(std::locale::classic());
    stream << std::setprecision(digits) << value;
    text = stream.str();
    double back = 0;
    if (stream >> back && back == value) break;
  }
  return text;
}

// Numbers that JSON does not have become texts that Python's float() can read, as among the inputs of ops.
inline void append_json(std::string& out, double value) {
  if (!std::isfinite(value)) {
    out += std::isnan(value) ? "\"nan\"" : value < 0 ? "\"-inf\"" : "\"inf\"";
    return;
  }
  const std::string digits = shortest(value);
  out += digits;
  bool is_whole = digits.find_first_not_of("-0123456789") == std::string_view::npos;
  if (is_whole) out += ".0";
}

inline void append_json(std::string& out, const c10::IValue& value) {
  if (value.isString()) {
    append_json(out, value.toStringRef());
  } else if (value.isBool()) {
    out += value.toBool() ? "true" : "false";
  } else if (value.isInt()) {
    out += std::to_string(value.toInt());
  } else if (value.isDouble()) {
    append_json(out, value.toDouble());
  } else if (value.isList()) {
    const char* before = "[";
    for (const c10::IValue& item : value.toListRef()) {
      out += before;
      append_json(out, item);
      before = ", ";
    }
    out += *before == '[' ? "[]" : "]";
  } else {
    out += "null";
  }
}

// Returns the JSON object, with sorted keys, because torch's map has no order.
inline std::string json_of(const std::unordered_map<std::string, c10::IValue>& keywords) {
  std::string out;
  for (const auto& [key, value] : std::map<std::string, c10::IValue>(keywords.begin(), keywords.end())) {
    out += out.empty() ? "{" : ", ";
    append_json(out, key);
    out += ": ";
    append_json(out, value);
  }
  return out.empty() ? out : out + "}";
}

}  // namespace opspan
