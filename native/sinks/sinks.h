// The plain C functions between torch's side (native/observer) and the tools' side (native/sinks).
//
// The observer is compiled on the user's machine against the torch that is installed; the sinks are built once, with
// the wheel, and know nothing of torch. Both include only this header, so it is C and needs no headers but the standard
// ones. Python opens the functions with ctypes (src/opspan/emit/sinks.py).
#ifndef OPSPAN_SINKS_H
#define OPSPAN_SINKS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define OPSPAN_SINKS_ABI 12
#define OPSPAN_EXPORT __attribute__((visibility("default")))

// The sinks, one on each line, numbered in this order: OPSPAN_NVTX, OPSPAN_ITT, ... The second word names a sink's
// functions (native/sinks/sink.h). src/opspan/emit/sink_list.py has the same list. There is one capture for each
// recording that can be on at the same time.
#define OPSPAN_SINKS(SINK)  \
  SINK(NVTX, Nvtx)          \
  SINK(ITT, Itt)            \
  SINK(CAPTURE, Capture)    \
  SINK(CAPTURE_2, Capture2) \
  SINK(CAPTURE_3, Capture3) \
  SINK(CAPTURE_4, Capture4)

#define OPSPAN_NUMBER(NAME, Name) OPSPAN_##NAME,
enum { OPSPAN_SINKS(OPSPAN_NUMBER) OPSPAN_SINK_COUNT };

// The forms a label can take. Not every sink has every form.
enum {
  OPSPAN_FORM_AUTO = 0,     // the best form that the tool understands
  OPSPAN_FORM_SCHEMA = 1,   // NVTX: own domain, registered name, extended payload
  OPSPAN_FORM_PAYLOAD = 2,  // NVTX: own domain, registered name, 64-bit payload = seq
  OPSPAN_FORM_TEXT = 3,     // all data in the name, in opspan's own text form
  OPSPAN_FORM_TORCH = 4,    // exactly what torch's own emitter would write
  OPSPAN_FORM_TASK = 5,     // ITT: interned name, ids, metadata, relations
};

// The kinds of ranges, by the numbers of capture::Kind and labels.py.
enum {
  OPSPAN_KIND_UNKNOWN = 0,
  OPSPAN_KIND_OP = 1,
  OPSPAN_KIND_BACKWARD = 2,
  OPSPAN_KIND_ENGINE = 3,  // ranges whose names begin with OPSPAN_ENGINE
  OPSPAN_KIND_USER = 4,
  OPSPAN_KIND_MODULE = 5,
  OPSPAN_KIND_STEP = 6,
  OPSPAN_KIND_SCRIPT = 7,
  OPSPAN_KIND_DTYPE = 8,
  OPSPAN_KIND_CLASS = 9,
  OPSPAN_KIND_FEATURE = 10,
  OPSPAN_KIND_LITE = 11,
  OPSPAN_KIND_STATIC_OP = 12,
  OPSPAN_KIND_STATIC_MODEL = 13,
};

#define OPSPAN_ENGINE "autograd::engine::evaluate_function: "

// The inputs of an op, as a run of int64 words with one group for each argument. A group begins with a word that
// describes it. The fields of the word, from its lowest bit on:
//   4 bits   TENSOR, LIST (if a tensor is in the list), or NOTHING (undefined tensor, number, string, None ...)
//   4 bits   for a tensor: the strides
//   24 bits  the type, an index into type_names; the name of NONE is ""
//   32 bits  for a tensor: the rank; that many dimensions follow, and that many strides if FOLLOW;
//            for a list: the number of items; a group for each item follows
// Types and strides are there only for OPSPAN_INPUTS_ALL. If a list does not consist of tensors only (TENSOR_LIST), its
// items have no types and strides.
enum { OPSPAN_INPUT_NOTHING = 0, OPSPAN_INPUT_TENSOR = 1, OPSPAN_INPUT_LIST = 2 };
// USUAL means the strides of a contiguous tensor, whose last dimension is the densest.
enum { OPSPAN_STRIDES_NONE = 0, OPSPAN_STRIDES_USUAL = 1, OPSPAN_STRIDES_FOLLOW = 2 };
enum {
  OPSPAN_TYPE_NONE = 0,
  OPSPAN_TYPE_SCALAR = 1,
  OPSPAN_TYPE_SCALARS = 2,
  OPSPAN_TYPE_TENSOR_LIST = 3,
  OPSPAN_TYPE_TENSORS = 4,  // the type of a tensor is this number plus torch's number of the type
};

// The part of the inputs that a sink gets.
enum {
  OPSPAN_INPUTS_NONE = 0,
  OPSPAN_INPUTS_SIZES = 1,
  OPSPAN_INPUTS_TENSORS = 2,  // sizes, and the addresses of tensors among inputs and outputs: OPSPAN_FORM_TORCH
  OPSPAN_INPUTS_ALL = 3,      // sizes, types, strides, and the values of inputs other than tensors
};

// The values of inputs, as a run of int64 words with one group for each argument. A group begins with its kind. Then
// follow, for
//   INT, BOOL  the value        REAL  the bits of a double        COMPLEX  the bits of two doubles
//   LIST       the number of items, then a group for each
//   NONE       nothing: a tensor, a string, a long list, None ...
enum {
  OPSPAN_VALUE_NONE = 0,
  OPSPAN_VALUE_INT = 1,
  OPSPAN_VALUE_BOOL = 2,
  OPSPAN_VALUE_REAL = 3,
  OPSPAN_VALUE_COMPLEX = 4,
  OPSPAN_VALUE_LIST = 5,
};

// Reads the Python functions that the calling thread is in. This works only while its op begins.
typedef struct opspan_stacks {
  // Writes words that identify the stack: equal stacks have equal words. Writes no more words than `room`
  // (OPSPAN_STACK_WORDS are enough). Returns how many words were written.
  size_t (*words)(int64_t* out, size_t room);
  // Writes the text of a stack from its words, cut to `size` bytes, without a NUL. It has one line for each function,
  // the outermost first. Returns the length of the whole text.
  size_t (*text)(const int64_t* words, size_t count, char* out, size_t size);
} opspan_stacks;
enum { OPSPAN_STACK_WORDS = 768 };

// One range, as torch's RecordFunction describes it. Pointers are valid only during the call.
typedef struct opspan_op {
  const char* name;        // ended by NUL; the length is not known here
  size_t overload_length;  // length of the overload at the end of the name (aten::add.Tensor); 0: none
  uint32_t kind;
  uint32_t inputs_count;  // number of words in `inputs`; 0 when shapes are off
  const int64_t* inputs;
  // Only OPSPAN_INPUTS_ALL sets these three fields.
  const char* const* type_names;  // valid until the process ends
  const int64_t* values;
  size_t values_count;
  // The thread's innermost Python function, and the position in that function. They are set only if stacks were asked
  // for and the thread runs Python. If another op begins at the same position while this op runs, it was called in the
  // same functions.
  const void* python;
  int64_t instruction;
  const opspan_stacks* stacks;
  int64_t sequence;         // -1: none
  uint64_t op_id;           // 0: none
  uint64_t thread;          // torch's logical id of this thread; 0: not known
  uint64_t forward_thread;  // torch's logical id of the forward op's thread; 0: not a backward op
  // Only for OPSPAN_FORM_TORCH with shapes: an address for each of torch's input_op_ids. A tensor has one; a list has
  // one for each tensor in it; an undefined tensor, a list without tensors and anything else have 0. (There may be
  // fewer addresses than sizes: torch leaves out undefined tensors in lists.)
  const uintptr_t* tensors;
  size_t tensor_count;
  const char* keywords;  // OPSPAN_INPUTS_ALL: the keyword values as a JSON object, ended by NUL; null: none
} opspan_op;

enum { OPSPAN_MEMORY_TAKEN = 0, OPSPAN_MEMORY_GIVEN_BACK = 1, OPSPAN_MEMORY_FAILED = 2 };

// Memory that torch allocated, freed, or could not allocate.
typedef struct opspan_memory {
  uint32_t what;
  int32_t device_type;   // as torch numbers them; 0: the host
  int32_t device_index;  // -1: the host
  uint64_t address;      // 0 if the allocation failed
  int64_t bytes;
  int64_t total;  // bytes allocated and not freed yet; only allocations that were seen count
} opspan_memory;

// The functions that the observer calls for each range. `key` is the address of torch's RecordFunction, which is unique
// while it lives.
typedef struct opspan_sink {
  void (*begin)(const void* key, const opspan_op* op);
  // thread: torch's id of the thread that begin was called on; end may come on another one (async ops).
  // outputs: addresses of the output tensors (0: not a tensor), only for OPSPAN_FORM_TORCH with shapes.
  void (*end)(const void* key, uint64_t op_id, uint64_t thread, const uintptr_t* outputs, size_t output_count);
  void (*memory)(const opspan_memory* memory);  // null: this sink takes no memory events
} opspan_sink;

OPSPAN_EXPORT int opspan_sinks_abi(void);
OPSPAN_EXPORT const opspan_sink* opspan_sink_of(int sink);
OPSPAN_EXPORT const char* opspan_sink_name(int sink);

typedef struct opspan_stats {
  uint64_t ranges;            // number of ranges that began during this session
  uint64_t late_ends;         // ranges that ended on another thread; the thread on which they began pops them later
  uint64_t sizes_dropped;     // number of sizes left out because the table of distinct strings was full
  uint64_t relations_missed;  // backward ops whose forward op was no longer in the table
  uint64_t lost;              // capture: units that could not be written
  uint64_t given_up;          // ranges that stay open; their thread began 16,384 more ranges and ended none of them
  uint64_t fields_dropped;    // a user's ranges whose category, colour, payload or detail the form has no place for
} opspan_stats;

// --- sessions: a sink has at most one
typedef struct opspan_settings {
  int form;              // OPSPAN_FORM_AUTO, or a form that the sink has
  uint32_t max_strings;  // the most distinct names with sizes that a tool gets
  const char* folder;    // for a capture, the folder of this process's file; it must exist. Forked processes use it too
  // The limits of a rolling capture. Older data may be dropped as soon as the newer data reach one of the limits. 0
  // means no limit.
  int64_t keep_ns;
  uint64_t keep_bytes;
  uint64_t keep_steps;
} opspan_settings;

// Returns 1 if a tool is listening, else 0. Asking makes the tool attach. A sink that needs no tool always listens.
OPSPAN_EXPORT int opspan_listening(int sink);
// Returns the form of the labels (> 0), and writes to `message` what the sink reports (a capture: the path of its
// file). On an error, returns -errno, and writes a sentence to `message`.
OPSPAN_EXPORT int opspan_start(int sink, const opspan_settings* settings, char* message, size_t message_size);
OPSPAN_EXPORT void opspan_stop(int sink, opspan_stats* stats);

// Opens the library that ITT is in (libtorch_cpu, or the ittapi package), whether it is already loaded or not.
OPSPAN_EXPORT int opspan_itt_open(const char* library, char* error, size_t error_size);
// Tells the tool to collect (1) or not to collect (0). These are ITT's calls resume and pause; NVTX has no such calls.
OPSPAN_EXPORT void opspan_itt_collect(int on);

// Returns 1 if NVTX and ITT both reach the same library of opspan's (`opspan run`), else 0. If both do, a range for
// both is sent only once: through the protocol whose session began to label last, or through NVTX if neither has such a
// session.
OPSPAN_EXPORT int opspan_one_tool(void);
// Tells the sink whether the observer passes ops to it from now on (1), or no longer (0).
OPSPAN_EXPORT void opspan_labelling(int sink, int on);

// Turns labelling on or off, for a schedule. A new session is on. It belongs to the process that started it, its owner.
// Processes that are forked during the session share it: they follow what the owner does, and their own calls do
// nothing. A stop in a forked process ends the session only in that process. A session that a forked process starts
// after that is its own.
OPSPAN_EXPORT void opspan_session_turn(int sink, int on);
// Makes this forked process the owner of the session that it got from its parent. Returns 1, or 0 if there is no
// session.
OPSPAN_EXPORT int opspan_session_adopt(int sink);
// For a rolling capture. opspan_capture_step counts a training step. opspan_capture_hold(sink, 1) keeps the files while
// somebody copies them; each such call needs an opspan_capture_hold(sink, 0) once the copy is done.
OPSPAN_EXPORT void opspan_capture_step(int sink);
OPSPAN_EXPORT void opspan_capture_hold(int sink, int on);
// Sets `callback`. A forked process that finds its session over first stops its own part of the session, and then calls
// schedule(callback, sink). `schedule` is Python's Py_AddPendingCall, which calls callback(sink) as soon as possible.
typedef int (*opspan_callback)(void* sink);
typedef int (*opspan_scheduler)(opspan_callback callback, void* sink);
OPSPAN_EXPORT void opspan_tell_forks(opspan_scheduler schedule, opspan_callback callback);

// --- a user's own ranges: they go to every sink that is on, and to NVTX and ITT whenever a tool listens there
typedef struct opspan_range {
  const char* name;  // UTF-8, any length, ended by NUL
  size_t name_length;
  uint32_t kind;         // OPSPAN_KIND_USER, _MODULE, _STEP
  uint32_t color;        // ARGB; 0: none
  const char* category;  // or null
  const char* detail;    // class of a module, args of a record_function, or null
  int32_t payload_type;  // 0 none, 1 int64, 2 uint64, 3 double
  union {
    int64_t i;
    uint64_t u;
    double d;
  } payload;
} opspan_range;

// Each sink has a bit: OPSPAN_TO_NVTX, OPSPAN_TO_ITT, ...
#define OPSPAN_BIT(NAME, Name) OPSPAN_TO_##NAME = 1 << OPSPAN_##NAME,
enum { OPSPAN_SINKS(OPSPAN_BIT) OPSPAN_TO_ALL = (1 << OPSPAN_SINK_COUNT) - 1 };
// Restricts a range to sinks with a session that labels (module ranges). If `to` contains the product of a sink's bit
// and this number, the sink gets the range only while it has such a session.
enum { OPSPAN_IN_SESSION = 1 << OPSPAN_SINK_COUNT };

// Returns the zero-based depth of the new range on this thread; -1 if nobody listens. Each sink has a depth of its own
// for the thread. The depth of the first sink in `to` that takes the range is returned.
OPSPAN_EXPORT int opspan_push(const opspan_range* range, uint32_t to);
// Ends this thread's innermost range at each sink of `to`. Pop only ranges for which opspan_push returned a depth, and
// with the same `to`. Returns the zero-based depth of the ended range at the first sink that had taken it; -1 if none
// was open. A range ends at every sink to which it was pushed, even if the session has stopped since.
OPSPAN_EXPORT int opspan_pop(uint32_t to);
// Takes this thread's innermost range off the ranges that opspan_pop ends: it lasts until opspan_end_detached is called
// with the returned number and `thread`, on any thread. Returns 0 if no range is open.
OPSPAN_EXPORT uint64_t opspan_detach(uint32_t to, uint64_t* thread);
OPSPAN_EXPORT void opspan_end_detached(uint64_t number, uint64_t thread, uint32_t to);
OPSPAN_EXPORT void opspan_mark(const opspan_range* range, uint32_t to);
// Starts a range that may end on any thread. Returns its id; 0: nobody listens.
OPSPAN_EXPORT uint64_t opspan_range_start(const opspan_range* range, uint32_t to);
OPSPAN_EXPORT void opspan_range_end(uint64_t id);

#ifdef __cplusplus
}
#endif
#endif
