// The work of one step: rows, the runs that they belong to, and whose logits are asked for. Fixed
// arrays in host memory, filled before the step and left alone until its end. What the kernels of a
// step read stands here; nothing variable is baked into an op.
//
//   row      one token: its id, its position, the slot it writes, the slots it sees
//   run      rows of one sequence that stand next to each other
//   memory   lent; a batch owns none
//   thread   the engine's
#pragma once

#include <array>
#include <span>

#include "platform/base/types.h"
#include "runtime/step/rows.h"

namespace tarn::kv {
class Sequence;
}

namespace tarn::step {

enum class RunKind : u8 {
  prefill,  // tokens that go to the KV; several at once
  first,    // the row whose logits begin an answer, alone
  decode,   // the row of the token that was sampled last, alone
};
// Where a run's rows go. A session's own KV; a chunk's, which is computed alone (reuse/blend/
// blend.h); or the layers in front of the check layer, in a sequence of these: such runs stand last
// in their batch.
enum class RunPart : u8 { own, chunk, check };
// dropped: the session was cancelled, the rows are computed and not committed. failed: the KV of
// the run is not whole, and nothing that the step computes of it is used.
enum class RunState : u8 { runs, dropped, failed };

// Background work takes what interactive work leaves.
enum class Priority : u8 { interactive, background };
inline constexpr Priority kPriorities[] = {Priority::interactive, Priority::background};

// A session that has rows for a step.
struct Ready {
  u32 session = 0;
  RunKind kind = RunKind::prefill;
  u32 n_rows = 0;             // that it could give now
  bool is_generated = false;  // its one row is that of a generated token
  bool waits = false;         // for a job: not in this step
  u32 tenant = 0;             // a small index
  Priority priority = Priority::interactive;
};

// Rows of one sequence that stand next to each other in a batch; ascending positions.
struct Run {
  u32 row_begin = 0;
  u32 n_rows = 0;
  u32 n_slots = 0;  // of the sequence that the run completes: more than rows where KV was placed
  kv::Sequence* sequence = nullptr;
  u32 session = 0;
  RunKind kind = RunKind::prefill;
  RunPart part = RunPart::own;
  RunState state = RunState::runs;
  bool is_generated = false;  // its one row is that of a generated token
  bool selects = false;       // and reads chosen slots only
  // Groups that need not be in memory: the run reads single slots of them, or has them elsewhere.
  u32 offloaded_begin = 0, offloaded_end = 0;
};

// Between two ops nothing of the step runs; within one, tasks do, and the disk's work would disturb
// them.
enum class Pause : u8 { between_ops, within_op };

// Who has a step computed: the one callback upward. A prefill slice of an 8B takes seconds on two
// cores, and neither the disk nor a cancel can wait for its end.
class StepHost {
 public:
  // Between ops moves the disk's work on; always tells cancelled sessions their ends. Whether the
  // step is still wanted. Called often, on the engine's thread.
  virtual bool tick(Pause pause) = 0;

 protected:
  ~StepHost() = default;
};

struct Batch {
  u32 n_rows = 0;
  u32* tokens = nullptr;       // [rows_max]
  u32* positions = nullptr;    // [rows_max]
  const u32* slots = nullptr;  // [rows_max] where a row's K and V go; may be `positions` itself
  u32* visible = nullptr;      // [rows_max] the row attends to slots [0, visible)
  std::span<Run> runs{};
  std::span<const u32> logit_rows{};  // rows whose logits are asked for, ascending; may be empty
  bool takes_best = false;   // of each of them its best token alone: summarize(), no fetch()
  StepHost* host = nullptr;  // nullptr: wanted to the end
  KvWatch kv_watch{};        // between the ops, run by run; rows in the backend's space
  u32 check_layer = 0;       // of the model, where check runs end: the step leaves their V
};

}  // namespace tarn::step
