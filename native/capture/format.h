// The bytes of a capture file. docs/formats/capture.md describes the format in words; src/opspan/readers/capture reads
// the files.
//
// A file is one header page, then chunks. A chunk belongs to one thread (events) or to the process (strings). Each
// event is a unit of one cache line, or of half a line if that is enough (halves.h). So a reader can treat a file as
// one array of 64-bit words, and two threads never write to the same line. The first word of a unit is written last. So
// a unit whose kind is 0 was not written completely, even if the process was killed.
#pragma once

#include <cstddef>
#include <cstdint>

namespace opspan::capture {

inline constexpr char kMagic[8] = {'O', 'P', 'S', 'P', 'A', 'N', 'C', 'P'};
inline constexpr uint32_t kVersion = 5;  // new in 2: kHasInputs; 3: segments; 4: halves.h; 5: kModel
inline constexpr size_t kPage = 4096;
inline constexpr size_t kUnitBytes = 64;
inline constexpr size_t kHalfBytes = 32;
inline constexpr uint32_t kChunkMagic = 0x4b4e4843;  // "CHNK"

enum class State : uint32_t {
  kOpen = 0,    // the file is being written, or its process was killed
  kClosed = 1,  // the file was closed normally
  kFull = 2,    // the disk was full; the file has all that was written before
};

enum class Producer : uint32_t { kRecord = 1, kCollectors = 2 };

struct FileHeader {
  char magic[8];
  uint32_t version;
  uint32_t header_bytes;  // size of this header, which is kPage; chunks follow
  uint32_t pid;
  uint32_t parent_pid;
  // CLOCK_MONOTONIC and CLOCK_REALTIME when the file was opened, and when it was closed (0 until then).
  int64_t open_monotonic_ns;
  int64_t open_utc_ns;
  int64_t close_monotonic_ns;
  int64_t close_utc_ns;
  uint32_t state;     // State
  uint32_t producer;  // Producer
  uint64_t lost;      // number of units that could not be written
  uint32_t forked;    // 1: this process was forked from a captured process and did not exec
  uint32_t reserved;
  char host[64];            // NUL-terminated
  char command_line[3072];  // arguments, each ended by NUL, then one more NUL
  // The recording to which this file belongs: open_monotonic_ns and pid of the process that started the recording. A
  // forked process has its parent's values. 0 means that the file is older than this field.
  int64_t session_ns;
  uint32_t session_pid;
  uint32_t segment;  // number of this file in a rolling recording, counted from 1; 0: the recording is not rolling
  // The environment variables that tell the process its rank (kRankVariables), and no others. Behind them, entries that
  // describe the processor (processor.h). Each is NAME=value, ended by NUL; one more NUL follows the last. Empty if
  // there are none, or if the file is older than this field.
  char environment[832];
};
static_assert(sizeof(FileHeader) <= kPage);

// Older versions wrote kUnits chunks, in which all units are full.
enum class ChunkKind : uint32_t { kUnits = 1, kStrings = 2, kHalves = 3 };

// A chunk starts with these 64 bytes, at a multiple of kPage. The next chunk starts `bytes` after the start of this
// one.
struct ChunkHeader {
  uint32_t magic;  // kChunkMagic, written last
  uint32_t kind;   // a ChunkKind
  uint64_t bytes;  // size of the chunk, including this header; a multiple of kPage
  uint32_t tid;    // the OS thread; 0 for strings
  uint32_t reserved;
  uint64_t first_unit;   // number of its first Half (kUnits: first unit), counted per thread from 0
  char thread_name[16];  // the kernel's name of the thread when the chunk was made
  uint64_t reserved2[2];
};
static_assert(sizeof(ChunkHeader) == kUnitBytes);

// A string chunk has its header and then entries, without gaps. An entry is a uint32 with the length + 1 (0 means that
// no more entries follow), a uint32 with the id, and the bytes of the text. It is padded to a multiple of 8 bytes. Ids
// count up from 1 over all chunks of the file; id 0 means "none". The bytes should be UTF-8, but a program can pass
// other bytes.

enum class Unit : uint8_t {
  kNone = 0,
  kRange = 1,      // a range, nested with the others of its thread; its end is written into this unit later
  kAsync = 2,      // an NVTX start/end range or an overlapped ITT task; a kEnd unit of any thread ends it
  kMark = 3,       // a point in time
  kEnd = 4,        // ends the kAsync or kFrame with the same id, or the kRange (owner_tid, owner_unit)
  kAttribute = 5,  // adds `key = value` to the unit `owner` of the same thread
  kBlob = 6,       // up to 48 bytes of the payload of unit `owner`; a longer payload has several kBlobs in sequence
  kIds = 7,        // the ITT task id and parent id of unit `owner`
  kRelation = 8,   // a relation between two ITT ids
  kName = 9,       // names a thread or a category
  kCounter = 10,
  kSchema = 11,  // an NVTX payload schema; kBlob units carry its entries
  kState = 12,   // collection was paused (flags 0) or resumed (flags 1)
  kFrame = 13,   // an ITT frame; a kEnd ends it, unless the client submitted it with its end
  kMemory = 14,  // memory; flags: 0 allocated, 1 freed, 2 the allocation failed
  kShort = 15,   // a kRange of Source::kTorch in half a cache line
  kModel = 16,   // the fields that kLike units share; it is not a range
  kLike = 17,    // a kRange in half a cache line; a kModel of the same thread and file has its other fields
  kBlock = 18,   // a kMemory of the host in half a cache line
};

enum class Source : uint8_t { kTorch = 1, kUser = 2, kNvtx = 3, kItt = 4 };

// The kind of a range. labels.py holds the same list.
enum class Kind : uint32_t {
  kUnknown = 0,
  kOp = 1,
  kBackward = 2,
  kEngine = 3,
  kUser = 4,
  kModule = 5,
  kStep = 6,
  kScript = 7,
  kDtype = 8,
  kClass = 9,
  kFeature = 10,
  kLite = 11,
  kStaticOp = 12,
  kStaticModel = 13,
  kPython = 14,  // no range: a call of a Python function. Its id is 1 + the number of the unit of the call around it
};

// Flags of kRange, kAsync, kMark and kCounter. The two lowest bits give the type of `value`.
inline constexpr uint16_t kValueNone = 0;
inline constexpr uint16_t kValueInt = 1;
inline constexpr uint16_t kValueUint = 2;
inline constexpr uint16_t kValueDouble = 3;
inline constexpr uint16_t kValueMask = 3;
inline constexpr uint16_t kHasColor = 4;
inline constexpr uint16_t kHasForward = 8;   // forward_tid is valid; it is 0 if the forward thread is not known
inline constexpr uint16_t kForeignEnd = 16;  // on kEnd: owner_tid and owner_unit are set, and id is not
inline constexpr uint16_t kOwnerById = 32;   // on kAttribute: `owner` is a kIds unit that has the owner's ITT id
// Set on a kRange of kNvtx or kItt in opspan's domain, if opspan labelled it as an op. The fields of the label are the
// same as for kTorch. On ITT, the id is (id, label::kTag, 0), and `parent` is the number of the parent range; 0 means
// that there is no parent. If the parent is a user's range, `parent` also has the bit kUsersParent.
inline constexpr uint16_t kHasLabel = 64;
inline constexpr uint64_t kUsersParent = uint64_t{1} << 63;
// Set on a kRange of kTorch if types, strides and values of the op's inputs are known. They are in fields that have
// other uses in other ranges.
inline constexpr uint16_t kHasInputs = 128;
// Set on a kRange of kTorch that has no kHasForward: `stack` then holds the Python functions that the op was called in.
inline constexpr uint16_t kHasStack = 256;
// Set on a kRange of kTorch if the part of the name after its last point is the op's overload, as in aten::add.Tensor.
inline constexpr uint16_t kHasOverload = 512;

// The `owner` of an attribute that belongs to the thread itself. Also the `owner` of a kIds unit to which an attribute
// with kOwnerById refers.
inline constexpr uint64_t kNoOwner = ~uint64_t{0};

struct Event {
  uint8_t kind;    // Unit; the 64-bit word with this field is written last
  uint8_t source;  // Source
  uint16_t flags;
  uint32_t name;  // string id of the name; for an attribute, of its key
  union {
    struct {  // for kRange, kAsync, kMark, kFrame
      int64_t start_ns;
      int64_t end_ns;  // 0: still open
      int64_t value;   // torch: sequence number (kValueInt) or none; NVTX: the 64-bit payload
      uint64_t id;     // torch and user: op id; kAsync: the id that its kEnd will have; else 0
      union {
        uint32_t domain;  // string id of the domain's name; 0: the default domain
        uint32_t inputs;  // kHasInputs: string id of the values of inputs other than tensors, as JSON
      };
      uint32_t category;  // torch and user: Kind; NVTX: the tool's category number
      union {
        uint32_t forward_tid;
        uint32_t stack;  // kHasStack: string id of the Python functions, one on each line, the outermost first
      };
      uint32_t sizes;  // string id of the sizes of the inputs, as text; 0: none
      union {
        struct {
          uint32_t color;   // ARGB
          uint32_t schema;  // NVTX payload schema id of the kBlob units that follow, or 0
        };
        struct {             // with kHasInputs
          uint32_t types;    // string id of a list of the types of the inputs, as JSON
          uint32_t strides;  // string id of the strides of the inputs, written like sizes
        };
        uint64_t parent;  // for kHasLabel on ITT
      };
    } range;
    struct {  // kEnd
      int64_t time_ns;
      uint64_t id;
      uint32_t owner_tid;
      uint32_t reserved;
      uint64_t owner_unit;
      uint64_t reserved2[3];
    } end;
    struct {           // for kAttribute
      uint64_t owner;  // a unit's number, or kNoOwner
      uint32_t type;   // an AttributeType
      uint32_t count;  // number of values; 1 for kText
      union {
        uint64_t words[5];
        int64_t ints[5];
        double doubles[5];
        struct {
          uint32_t text;  // for kText: string id of the text
        };
      };
    } attribute;
    struct {  // kBlob; flags: bytes used (48; 0 to 47 in the last unit of a payload); name: id of the payload's schema
      uint64_t owner;
      uint8_t bytes[48];
    } blob;
    struct {  // kIds
      uint64_t owner;
      uint64_t id[3];
      uint64_t parent[3];
    } ids;
    struct {  // for kRelation; `flags` is ITT's number of the relation
      int64_t time_ns;
      uint64_t head[3];
      uint64_t tail[3];
    } relation;
    struct {            // kName
      uint32_t what;    // the named object; 1: thread, 2: category
      uint32_t number;  // tid, or category number
      uint32_t domain;
      uint32_t reserved;
      uint64_t reserved2[5];
    } name_of;
    struct {  // kCounter
      int64_t time_ns;
      int64_t value;
      uint32_t domain;
      uint32_t reserved;
      uint64_t reserved2[4];
    } counter;
    struct {               // kSchema; its entries are in the kBlob units that follow, which have this unit as owner
      uint64_t schema_id;  // low 32 bits of NVTX's id; events and entries refer to it; unique in its domain
      uint32_t domain;
      uint32_t entries;
      uint32_t payload_bytes;
      uint32_t schema_type;  // NVTX_PAYLOAD_SCHEMA_TYPE_*
      uint64_t reserved2[4];
    } schema;
    struct {  // for kState; bit 0 of `flags`: 1 resumed, 0 paused
      int64_t time_ns;
      uint64_t reserved2[6];
    } state;
    struct {  // kMemory
      int64_t time_ns;
      uint64_t address;
      int64_t bytes;
      int64_t total;        // bytes in use (allocated, not freed) after this event
      int32_t device_type;  // torch's number of the device type; 0: the host
      int32_t device_index;
      uint64_t reserved2[2];
    } memory;
    uint64_t words[7];
  };
};
static_assert(sizeof(Event) == kUnitBytes);
static_assert(offsetof(Event, words) == 8);

enum class AttributeType : uint32_t { kInt = 1, kUint = 2, kDouble = 3, kText = 4, kBytes = 5 };

// The schema_type of an NVTX enumeration. Its entries hold the values (in `offset`) and their names. If an entry's
// `flags` is 1, its value is a bit flag.
inline constexpr uint32_t kSchemaEnum = 0x100;

// One entry of a kSchema unit's blob.
struct SchemaEntry {
  uint64_t flags;   // NVTX_PAYLOAD_ENTRY_FLAG_*
  uint64_t type;    // NVTX_PAYLOAD_ENTRY_TYPE_* or a schema id
  uint64_t offset;  // offset in the payload
  uint64_t array_or_union_detail;
  uint32_t name;  // string id of the name
  uint32_t reserved;
};
static_assert(sizeof(SchemaEntry) == 40);

// In a payload with a schema, integers are unchanged. A registered string's handle (entry type 80) is replaced by its
// string id, as a uint64. A C string's pointer (types 75 to 78) is replaced by the string id of a copy. Handles and
// pointers mean nothing once the process has ended.

}  // namespace opspan::capture
