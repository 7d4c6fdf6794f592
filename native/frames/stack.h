// Reads which Python functions a thread is in. The thread itself does so, without Python's lock.
//
// Torch releases that lock before it runs an op. While a thread is in native code, its frames do not change. The code
// objects that they run do not change either, because the frames hold references to them. So frames and code objects
// can be read, as long as the reader changes no reference count, and creates or changes no object. This works only if
// python_frames.h knows the release of Python.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>

#include "frames/python_frames.h"

namespace opspan {

inline uint64_t hash_of(PyObject* text) {
  if (!text || !PyUnicode_Check(text) || !PyUnicode_IS_READY(text)) return 0;
  // Once Python has computed the hash of a text, it stores the hash in the text.
  if (Py_hash_t known = reinterpret_cast<PyASCIIObject*>(text)->hash; known != -1) return static_cast<uint64_t>(known);
  size_t left = static_cast<size_t>(PyUnicode_GET_LENGTH(text)) * PyUnicode_KIND(text);
  const auto* bytes = static_cast<const char*>(PyUnicode_DATA(text));
  constexpr uint64_t kOdd = 0x9e3779b97f4a7c15;
  uint64_t hash = left * kOdd;
  while (left) {
    uint64_t word = 0;
    size_t count = left < sizeof(word) ? left : sizeof(word);
    std::memcpy(&word, bytes, count);
    hash = (hash ^ word) * kOdd;
    hash ^= hash >> 29;
    bytes += count;
    left -= count;
  }
  return hash;
}

inline python::Frame* function_at(python::Frame* frame) {
  while (frame && !python::is_function(frame)) frame = python::caller(frame);
  return frame;
}

inline python::Frame* innermost() {
  const PyThreadState* thread = PyGILState_GetThisThreadState();
  return function_at(thread ? python::innermost(thread) : nullptr);
}

inline const void* innermost(int64_t* instruction) {
  python::Frame* frame = innermost();
  if (frame) *instruction = python::offset_of(frame);
  return frame;
}

// Writes three words for each frame, the innermost first: the address of its code, a hash of the code's file and name,
// and a word with the position in the code and the first line of the code. The hash is of the contents of the texts and
// not of their addresses, because the memory of freed code and texts may be used again.
inline size_t stack_words(int64_t* out, size_t room) {
  size_t count = 0;
  for (python::Frame* frame = innermost(); frame && count + 3 <= room; frame = function_at(python::caller(frame))) {
    const PyCodeObject* code = python::code_of(frame);
    out[count++] = reinterpret_cast<int64_t>(code);
    out[count++] = static_cast<int64_t>(hash_of(code->co_filename) * 31 + hash_of(code->co_name));
    out[count++] = static_cast<int64_t>(python::offset_of(frame)) << 32 | code->co_firstlineno;
  }
  return count;
}

inline void append_utf8(std::string& out, Py_UCS4 letter) {
  if (letter < 0x20 || letter == 0x7f) letter = ' ';  // a control character in a name must not end the line
  if (letter < 0x80) {
    out += static_cast<char>(letter);
  } else if (letter < 0x800) {
    out += static_cast<char>(0xc0 | letter >> 6);
    out += static_cast<char>(0x80 | (letter & 0x3f));
  } else if (letter >= 0xd800 && letter < 0xe000) {
    out += '?';  // a byte of a path that cannot be decoded as text
  } else if (letter < 0x10000) {
    out += static_cast<char>(0xe0 | letter >> 12);
    out += static_cast<char>(0x80 | (letter >> 6 & 0x3f));
    out += static_cast<char>(0x80 | (letter & 0x3f));
  } else {
    out += static_cast<char>(0xf0 | letter >> 18);
    out += static_cast<char>(0x80 | (letter >> 12 & 0x3f));
    out += static_cast<char>(0x80 | (letter >> 6 & 0x3f));
    out += static_cast<char>(0x80 | (letter & 0x3f));
  }
}

inline void append_text(std::string& out, PyObject* text) {
  if (!text || !PyUnicode_Check(text) || !PyUnicode_IS_READY(text)) return;
  for (Py_ssize_t i = 0; i < PyUnicode_GET_LENGTH(text); ++i) append_utf8(out, PyUnicode_READ_CHAR(text, i));
}

// Returns whether the file is part of torch.compile. Calls inside torch.compile do not belong to the user's program.
inline bool is_compiler_file(const std::string& file) {
  for (const char* folder : {"/torch/_dynamo/", "/torch/_inductor/", "/torch/_functorch/", "/torch/_compile.py"}) {
    if (file.find(folder) != std::string::npos) return true;
  }
  return false;
}

// Appends one line for each frame, the outermost first: `train.py(12): forward`.
inline void append_stack(std::string& out, const int64_t* words, size_t count) {
  std::string file;
  for (size_t at = count / 3 * 3; at > 0; at -= 3) {
    auto* code = reinterpret_cast<PyCodeObject*>(words[at - 3]);
    file.clear();
    append_text(file, code->co_filename);
    if (is_compiler_file(file)) continue;
    if (!out.empty()) out += '\n';
    int line = PyCode_Addr2Line(code, static_cast<int>(words[at - 1] >> 32));
    out += file;
    out += '(';
    out += std::to_string(line > 0 ? line : code->co_firstlineno);
    out += "): ";
    append_text(out, code->co_name);
  }
}

}  // namespace opspan
