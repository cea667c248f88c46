@0xd8c2b7f40f1ea651;
# The capability contract of the capOS GPU driver service.
#
# The interface is the permission: what a client may do is the set of methods
# of the interface it holds, never a flag in a message. A method that the held
# capability does not have is answered by an `unimplemented` exception.
#
# Errors are Cap'n Proto exceptions of type failed, overloaded, disconnected or
# unimplemented. Their reason starts with a stable code and key=value operands,
# for instance "E_QUOTA deviceMemory asked=1048576 available=4096". The table is
# docs/errors.md. Expected outcomes of work, a missed deadline included, are
# results (Outcome), never exceptions.
#
# Nothing is pushed: the service never calls a capability of a client. What
# completes, streams or changes is pulled by a call that blocks.

using Go = import "/go.capnp";
$Go.package("schema");
$Go.import("capgpu/schema");

# ---------------------------------------------------------------- for clients

interface GpuDeviceManager {
  # The capability that a tenant's socket gives: what a tenant may see and open.

  listDevices @0 () -> (devices :List(GpuDeviceInfo));

  openDevice @1 (capabilityIndex :UInt32) -> (session :GpuSession);
  # Opens a session on the device whose GpuDeviceInfo.index is capabilityIndex.
  # The returned capability has the methods of the facet that the tenant's
  # policy grants: it may answer GpuMemorySession or GpuProgramSession only.

  lifecycle @2 (capabilityIndex :UInt32) -> (lifecycle :Lifecycle);
}

struct GpuDeviceInfo {
  index        @0 :UInt32;       # what openDevice takes
  name         @1 :Text;         # "mock0"
  backend      @2 :Text;         # "mock", "edu", ...
  pciAddress   @3 :Text;         # "0000:00:01.0"; empty for the fake function
  vendorId     @4 :UInt16;
  deviceId     @5 :UInt16;
  state        @6 :DeviceState;
  epoch        @7 :UInt64;       # counts drivers of this function; see Lifecycle
  memoryBytes  @8 :UInt64;       # device memory in all
  facet        @9 :SessionFacet; # what openDevice would give this tenant
  recovery     @10 :RecoveryStep; # where the device stands on the ladder of recovery
  suspended    @11 :Bool;         # an operator has it begin nothing, whatever its state
  shortage     @12 :Text;         # what its driver has run out of; empty: nothing
}

enum RecoveryStep {
  # How far the service has gone to get a device back from work that does not end,
  # the smallest step first. It says nothing about whose work it was.
  none          @0;
  cancelling    @1;  # the device was told to stop one piece of work
  queueReset    @2;  # the work of one session is being ended; nobody else's is touched
  functionReset @3;  # the whole function is being reset: what is caught ends innocent
  respawn       @4;  # its driver is being replaced
  wedged        @5;  # given up
}

enum DeviceState {
  starting   @0;  # the driver is being spawned
  ready      @1;  # openDevice works
  recovering @2;  # lost; a successor driver is on its way
  wedged     @3;  # given up; an operator has to act
}

enum SessionFacet {
  memory  @0;  # GpuMemorySession
  program @1;  # GpuProgramSession
  full    @2;  # GpuSession
}

interface Lifecycle {
  next @0 (epoch :UInt64, timeoutNanos :UInt64, steps :Bool)
      -> (epoch :UInt64, state :DeviceState, cause :Text, changed :Bool,
          recovery :RecoveryStep, lastRecovery :RecoveryStep, incidents :UInt64,
          suspended :Bool);
  # Answers at once unless the device is ready in `epoch`, or its present state
  # was told to this client already by the last call with that epoch; then it
  # blocks for another state, or until the time is up (changed = false). Pass 0
  # first, then the epoch that the last call returned. After a loss the sequence
  # is recovering (with the cause), then ready with a greater epoch; who asks late
  # is told the latest state only. Sessions of earlier epochs never come back.
  # With `steps` a change of recovery, incidents or suspended is news as well, also
  # while the device is ready. Steps take milliseconds, and one may be over when it is told:
  # lastRecovery is how far the last incident went, incidents counts those of the epoch.
}

interface GpuMemorySession {
  # Memory, fences and copies: the weakest session.

  createBuffer @0 (bytes :UInt64, usage :Text) -> (buffer :GpuBuffer);
  # bytes: 1 to Description.maxBufferBytes, charged rounded up to 4096.
  # usage: space-separated words of "storage" (default), "upload", "readback", "device". A
  # buffer of usage "device" cannot be mapped, read or written; its bytes come and go by copies.
  # The memory is zero.

  destroyBuffer @1 (buffer :UInt32) -> ();
  # Same as GpuBuffer.close on the buffer with this id.

  submitMemcpy @2 (dst :UInt32, src :UInt32, bytes :UInt64) -> ();
  # Queues a copy of the first `bytes` bytes of buffer src to buffer dst on the
  # session's default queue. Its outcome is reported by the next fence signal on
  # that queue (submitFenceSignal, or the fence of a later launch).

  submitFenceWait @3 (fence :UInt32, orderOnly :Bool) -> ();
  # Work queued later starts once the fence has reached the value it was last
  # promised (GpuFence.value of the moment of this call, counting queued signals).
  # If that point does not end ok, work up to the next signal ends cancelled, unless
  # the wait is orderOnly: then the queue goes on however the point ended.

  createFence @4 () -> (fence :GpuFence);

  submitFenceSignal @5 (fence :UInt32) -> (value :UInt64);
  # Queues a signal: when everything queued before it has ended, the fence
  # advances to `value` with the worst outcome of the work since the previous
  # signal on the same queue.

  describe @6 () -> (description :Description);
  budget @7 () -> (entries :List(BudgetEntry));

  restrict @8 (policy :SessionPolicy) -> (session :GpuMemorySession);
  # A weaker session whose charges count against this one as well. Its methods
  # are those of policy.facet, at most this session's own. It ends with this one.

  close @9 () -> ();
  # Revokes the session and everything below it. Returns when nothing of it is
  # accepted any more and no work of it runs or will. Its memory is scrubbed and
  # its charges are given back soon after.
}

interface GpuProgramSession extends(GpuMemorySession) {
  # Adds running programs that were vetted elsewhere.

  openProgram @0 (name :Text) -> (program :GpuProgram);
  # A program of the device's registry or of the tenant's vetted list by its name,
  # or by its digest ("sha256:" and 64 hexadecimal digits) one that this session
  # or one above it has loaded and not closed. It ends with what it was opened of.

  runProgram @1 (program :GpuProgram, bindings :List(Binding), inlineArgs :Data,
                 fence :GpuFence) -> ();
  # Queues one launch over the program's natural grid on the default queue.
  # A null fence leaves the outcome to the next signal. The program may be one of
  # a session above this one on the same connection.
}

interface GpuSession extends(GpuProgramSession) {
  # Adds arbitrary launches, loading of programs, and queues.

  launchKernel @0 (program :Text, grid :UInt32, block :UInt32,
                   bufferList :List(UInt32), fence :GpuFence) -> ();
  # program: as openProgram takes it ("vecadd_f32"). grid: workgroups in x.
  # block: threads per workgroup in x. bufferList: ids of whole buffers, in the
  # order of the program's bindings.

  loadProgram @1 (bundle :Data) -> (program :GpuProgram);
  # bundle: SPIR-V with a manifest, docs/program-profile.md, at most 1 MiB. What is
  # not in the profile is refused: E_PROGRAM with a code and the place.

  submit @2 (commands :List(Command), fence :GpuFence) -> (ticket :UInt64);
  # Queues a batch in order on the default queue, all or nothing; then signals
  # the fence if it is not null. Tickets of a session ascend from 1.

  createQueue @3 () -> (queue :GpuQueue);

  recordList @4 (commands :List(Command)) -> (list :GpuCommandList);
  # Checks up to 1,024 launches, copies and fills once, to be run as one command
  # (Command.replay) as often as wanted. They have no deadlines of their own. A list
  # keeps nothing alive: once a buffer or program that is in it is closed, its
  # replays end failed, as stale.
}

interface GpuCommandList {
  close @0 () -> ();
}

interface GpuQueue {
  # An in-order queue. Queues of one session run beside each other.

  submit @0 (commands :List(Command)) -> (firstTicket :UInt64);
  completions @1 (max :UInt32, timeoutNanos :UInt64) -> (completions :List(Completion));
  # Blocks for the next completions, in order; an empty list when time is up.
  cancel @2 () -> ();
  # Ends all queued and running work of this queue as cancelled.
  close @3 () -> ();
}

interface GpuProgram {
  info @0 () -> (info :ProgramInfo);
  close @1 () -> ();
}

interface GpuBuffer {
  mapReadWrite @0 () -> (addr :UInt64, len :UInt64, memory :SharedMemory);
  # `memory` carries the memory's file descriptor as attachedFd (C++: getFd()).
  # Map len bytes at offset addr of that descriptor. addr is a multiple of 4096.
  unmap @1 () -> ();
  size @2 () -> (bytes :UInt64);
  close @3 () -> ();
  id @4 () -> (id :UInt32);
  read @5 (offset :UInt64, length :UInt32) -> (data :Data);   # at most 64 KiB
  write @6 (offset :UInt64, data :Data) -> ();                # at most 64 KiB
}

interface SharedMemory {
  # A carrier of one file descriptor. It has no methods.
}

interface GpuFence {
  # A 64-bit timeline. A point fails or succeeds once and never changes.

  poll @0 () -> (status :Text, value :UInt64, outcome :Outcome);
  # status: "pending" while a queued signal is outstanding; otherwise the name
  # of the outcome of the last reached point: "ok", "failed", ...; "idle" before
  # the first signal was queued.
  wait @1 (timeoutNanos :UInt64) -> (ok :Bool, outcome :Outcome);
  # Waits for the last value promised by calls made before this one, or for the
  # first promise if there is none yet. ok is true only if it was reached with
  # outcome ok. A timeout is ok = false with outcome.kind = pending. A close of
  # the session meanwhile is an outcome (revoked) or an exception, never ok.
  close @2 () -> ();
  id @3 () -> (id :UInt32);
  value @4 () -> (reached :UInt64, promised :UInt64);
  waitValue @5 (value :UInt64, timeoutNanos :UInt64) -> (ok :Bool, outcome :Outcome);
  signal @6 (value :UInt64) -> ();
  # Signals from the client's side; value must exceed the promised one.
}

struct Outcome {
  kind    @0 :OutcomeKind;
  cause   @1 :OutcomeCause;
  trap    @2 :Trap;       # set when cause = trap
  message @3 :Text;       # for people
}

enum OutcomeKind {
  pending    @0;  # not an outcome: nothing has ended yet
  ok         @1;
  failed     @2;  # this work is guilty; see cause
  innocent   @3;  # reset by another's fault
  cancelled  @4;  # by its owner, or because work it waited for did not succeed
  revoked    @5;  # its session, queue, buffer or program was closed
  timedOut   @6;  # it missed its deadline and was stopped
  deviceLost @7;
}

enum OutcomeCause {
  none        @0;
  trap        @1;  # the program did something undefined; see trap
  deviceError @2;  # the device reported an error completion
  launchLimit @3;  # refused at launch
  dependency  @4;  # a fence it waited for did not end ok
  hang        @5;  # no progress until the deadline
  reset       @6;
  gone        @7;  # the device no longer answers
  closed      @8;
  protocol    @9;  # the ring or its entries were malformed
  poisoned    @10; # a trap of earlier work of the same session; see E_POISONED
  iommuFault  @11; # the device reached for memory that it was not granted; nothing was changed
}

struct Trap {
  kind      @0 :TrapKind;
  binding   @1 :UInt32;   # 65535: not a binding but shared or private memory
  offset    @2 :UInt64;   # bytes from the start of the binding, or of the variable
  workgroup @3 :UInt32;   # linear index
  lane      @4 :UInt32;   # linear index in the workgroup
}

enum TrapKind {
  none         @0;
  outOfBounds  @1;
  misaligned   @2;
  divideByZero @3;
  unreachable  @4;
  memoryGone   @5;   # the memory under a binding could not be read
  divergentBarrier @6;  # not all lanes of a workgroup reached a barrier together
  dataRace      @7;  # two lanes used the same memory with no barrier between (checked sessions)
  uninitialized @8;  # shared memory was read before it was written (checked sessions)
}

struct Binding {
  buffer @0 :UInt32;   # id
  offset @1 :UInt64;   # bytes
  length @2 :UInt64;   # bytes; 0 = to the end
}

struct Command {
  deadlineNanos @0 :UInt64;   # 0 = the policy's
  union {
    launch :group {
      program    @1 :GpuProgram;
      gridX      @2 :UInt32 = 1;
      gridY      @3 :UInt32 = 1;
      gridZ      @4 :UInt32 = 1;   # grid and block all 0: the natural grid
      blockX     @5 :UInt16 = 1;
      blockY     @6 :UInt16 = 1;
      blockZ     @7 :UInt16 = 1;   # 0, 0, 0, or 1, 1, 1 where it is made for one: the program's
      sharedBytes @8 :UInt32;
      bindings   @9 :List(Binding);
      inlineArgs @10 :Data;
    }
    copy :group {
      dst       @11 :UInt32;
      dstOffset @12 :UInt64;
      src       @13 :UInt32;
      srcOffset @14 :UInt64;
      length    @15 :UInt64;
    }
    fill :group {
      buffer     @16 :UInt32;
      fillOffset @17 :UInt64;   # multiple of 4
      fillLength @18 :UInt64;   # multiple of 4
      pattern    @19 :UInt32;
    }
    signal :group {
      fence @20 :UInt32;
      value @21 :UInt64;
    }
    wait :group {
      waitFence @22 :UInt32;
      waitValue @23 :UInt64;
      orderOnly @26 :Bool;   # go on however the point ended
    }
    replay :group {
      # Runs a list: ok only if all of it was, and the first that was not is the last
      # that ran. The deadline is that of all of it.
      list    @24 :GpuCommandList;
      patches @25 :List(Patch);
    }
  }
}

struct Patch {
  # Changes one command of a list for one replay: inline bytes of a launch if there
  # are any here, else which part of its buffer a binding is.
  command @0 :UInt32;   # of the list, from 0
  at      @1 :UInt32;   # offset of the inline bytes; or the binding (copy: 0 = dst, 1 = src; fill: 0)
  inline  @2 :Data;
  offset  @3 :UInt64;   # bytes, in the same buffer
  length  @4 :UInt64;   # bytes; 0 = as recorded
}

struct Completion {
  ticket      @0 :UInt64;
  outcome     @1 :Outcome;
  deviceNanos @2 :UInt64;   # measured device time, as charged; 0 for a signal
  endedAtNanos @3 :UInt64;
  # When the point of a signal ended: nanoseconds since the device was opened in this
  # epoch. 0 for other commands, and for a signal that did not end ok.
}

struct ProgramInfo {
  # What a launch of the program has to be like.
  name         @0 :Text;
  digest       @1 :Data;        # SHA-256 of the bundle: the program's identity
  bindings     @2 :List(BindingInfo);
  inlineBytes  @3 :UInt32;      # a launch gives as many
  sharedBytes  @4 :UInt32;      # static shared memory
  inline       @5 :List(InlineField);
  blockX       @6 :UInt32;      # the workgroup that a launch must ask for;
  blockY       @7 :UInt32;      # the default where blockFree is set
  blockZ       @8 :UInt32;
  blockFree    @9 :Bool;        # the launch decides
  dynamicElementBytes @10 :UInt32;  # dynamic shared memory is of elements of this size; 0 = it takes none
  stackBytes   @11 :UInt32;     # private memory of one lane
  orderDependent @12 :Bool;     # results may depend on the order of workgroups
  features     @13 :List(Text); # what not every device has: "f64", "subgroupVote"
  warnings     @14 :List(Text); # of the verifier; the first 16, for people
  toleranceAbs @15 :Float64;    # two right results differ by at most
  toleranceRel @16 :Float64;    # toleranceAbs + toleranceRel * |result|
}

struct BindingInfo {
  name   @0 :Text;
  access @1 :BindingAccess;
  type   @2 :Text;   # "f32" and the like, where all elements are of one scalar type
}

struct InlineField {
  name   @0 :Text;
  type   @1 :Text;     # "f32" and the like
  offset @2 :UInt32;   # bytes
}

enum BindingAccess {
  read      @0;
  write     @1;
  readWrite @2;
}

struct Description {
  # The bounds that the service promises.
  device             @0 :GpuDeviceInfo;
  hangBoundNanos     @1 :UInt64;  # from a deadline to its typed outcome
  maxDeadlineNanos   @2 :UInt64;
  maxBufferBytes     @3 :UInt64;
  maxThreadsPerBlock @4 :UInt32;
  maxGridDim         @5 :UInt32;
  maxSharedBytes     @6 :UInt32;
  maxBindings        @7 :UInt32;
  maxInlineBytes     @8 :UInt32;
  queueEntries       @9 :UInt32;
  subgroupSize       @10 :UInt32;
  facet              @11 :SessionFacet;
  programs           @12 :List(Text);  # names that openProgram takes
  trap               @13 :Trap;    # what poisoned the session; kind none while nothing has
  checked            @14 :Bool;    # see SessionPolicy.check
  poisoned           @15 :Outcome; # of the work that poisoned the session: a trap, or an IOMMU fault; pending while none has
  revokeBoundNanos   @16 :UInt64;  # from a close to its answer, and to that of every call and wait on what it ends
  globalMemAlignment @17 :UInt32;  # bytes; a binding at a multiple of it never traps as misaligned, and is never refused for its offset
  computeUnits       @18 :UInt32;  # parts of the device that run workgroups at the same time; 0 = not known
  deterministic      @19 :Bool;    # the same work on the same memory has the same result; see ProgramInfo.orderDependent
  maxBindingBytes    @20 :UInt64;  # 0 = only the buffer bounds a binding
  localBytes         @21 :UInt64;  # memory of the device's own, for buffers of usage "device"; 0 = none, all is the host's
}

struct BudgetEntry {
  resource @0 :Text;     # "deviceMemory"; see docs/glossary.md
  used     @1 :UInt64;
  limit    @2 :UInt64;
  peak     @3 :UInt64;
}

struct SessionPolicy {
  facet            @0 :SessionFacet;
  limits           @1 :List(Limit);
  maxDeadlineNanos @2 :UInt64;      # 0 = as the parent
  programs         @3 :List(Text);  # empty = as the parent
  check            @4 :Bool;
  # Programs run slowly, and watched: a data race, a read of uninitialised shared
  # memory or a divergent barrier is a trap as well. Set for good below a checked
  # session.
}

struct Limit {
  resource @0 :Text;
  amount   @1 :UInt64;
}

# ---------------------------------------------------------------- for users of models

interface ModelServer {
  # The capability that a model server's socket gives: one model, and what may be done
  # with it, each a capability that can be passed on alone.

  languageModel @0 () -> (model :LanguageModel);
  embedder @1 () -> (embedder :Embedder);
  status @2 () -> (status :ModelStatus);
}

interface LanguageModel {
  info @0 () -> (info :ModelInfo);

  generate @1 (request :GenerateRequest) -> (stream :TokenStream);
  # Returns when the request is accepted: it may still wait for a place. A request that
  # cannot be served is E_INVALID, naming the field; one for which there is no room,
  # E_QUOTA or E_BUSY.

  tokenize @2 (text :Text) -> (tokens :List(Int32));
  # With the token that begins a text, where the model has one.

  chat @3 (messages :List(ChatMessage)) -> (tokens :List(Int32));
  # The prompt that these messages make: what generate takes as tokens. See
  # ModelInfo.chatStops.
}

struct GenerateRequest {
  prompt :union {
    text     @0 :Text;
    tokens   @1 :List(Int32);        # the one that begins a text included
    messages @2 :List(ChatMessage);  # in the model's chat template
  }
  maxTokens @3 :UInt32;              # of the answer; 0 = as the context has room for
  sampling  @4 :Sampling;
  stop      @5 :List(Text);          # the answer ends before the first of these; at most 16
  logProbs  @6 :Int32 = -1;          # alternatives to tell of each token; -1 = not even its own
  ignoreEnd @7 :Bool;                # go on after the token that ends a text
}

struct ChatMessage {
  role    @0 :Text;   # "system", "user", "assistant"
  content @1 :Text;
}

struct Sampling {
  # How a token is chosen. All zero: the most likely one.
  temperature       @0 :Float32;
  topK              @1 :UInt32;    # 0 = all
  topP              @2 :Float32;   # 0, 1 = all
  minP              @3 :Float32;   # 0 = all
  repetitionPenalty @4 :Float32;   # 0, 1 = none
  presencePenalty   @5 :Float32;
  frequencyPenalty  @6 :Float32;
  penaltyLast       @7 :Int32;     # tokens that count; 0 = 64, negative = all
  seeded            @8 :Bool;      # the same seed gives the same answer
  seed              @9 :UInt64;
  bias              @10 :List(TokenBias);  # at most 1,024
}

struct TokenBias {
  id    @0 :Int32;
  value @1 :Float32;   # added to the token's logit
}

interface TokenStream {
  # An answer that is being made. It is pulled: one that nobody pulls stops after a
  # bounded number of tokens. Dropping it, or close, cancels what has not ended, and
  # gives back at once what it held.

  next @0 (max :UInt32, timeoutNanos :UInt64)
      -> (tokens :List(Token), done :Bool, finish :FinishReason, usage :Usage);
  # Waits for tokens and returns those that are there, at least one and at most max
  # (1,024); none when time is up, or with done. finish and usage are final with done. If
  # the device goes, or the session behind the model is taken away, it is an exception;
  # the tokens before it are true, and all there are.

  close @1 () -> ();
}

struct Token {
  id      @0 :Int32;
  text    @1 :Text;                # what it adds; characters whole, stop strings never
  logProb @2 :Float32;
  top     @3 :List(Alternative);
}

struct Alternative {
  id      @0 :Int32;
  text    @1 :Data;                # its bytes
  logProb @2 :Float32;
}

enum FinishReason {
  unfinished @0;
  stop       @1;   # a stop string, or the token that ends a text
  length     @2;   # maxTokens, or the end of the context
  cancelled  @3;
}

struct Usage {
  promptTokens     @0 :UInt32;
  completionTokens @1 :UInt32;
  queuedNanos      @2 :UInt64;
  prefillNanos     @3 :UInt64;
  decodeNanos      @4 :UInt64;
  deviceNanos      @5 :UInt64;   # its share of measured device time
}

interface Embedder {
  info @0 () -> (info :ModelInfo);

  embed @1 (texts :List(Text)) -> (embeddings :List(List(Float32)), usage :Usage);
  # A vector of length 1, of info.dim numbers, for each text: at most 64.
}

struct ModelInfo {
  name       @0 :Text;
  format     @1 :Text;     # of its file: "gguf", "llama2c", "safetensors"
  parameters @2 :UInt64;
  bytes      @3 :UInt64;   # of weights in device memory
  context    @4 :UInt32;   # positions of one request, prompt and answer
  vocab      @5 :UInt32;
  dim        @6 :UInt32;
  chatStops  @7 :List(Text);
  # What ends an answer to the tokens of chat, where no token does: for stop. A request
  # of messages has them already.
}

struct ModelStatus {
  state   @0 :ModelState;
  reason  @1 :Text;              # why it is not ready
  device  @2 :GpuDeviceInfo;
  budget  @3 :List(BudgetEntry); # of the model's session
  loaded  @4 :UInt64;            # bytes of weights in device memory
  bytes   @5 :UInt64;            # of weights in all
  running @6 :UInt32;            # requests that have a place
  waiting @7 :UInt32;            # and that wait for one
}

enum ModelState {
  loading    @0;
  ready      @1;
  recovering @2;   # the device went; the model is loaded again when it is back
  revoked    @3;   # the session was taken away
  stopped    @4;
}

# ---------------------------------------------------------------- for drivers

struct GrantSet {
  # What a driver process is given, for one function. The first message on its
  # manager link; the descriptors travel with it.
  device      @0 :GpuDeviceInfo;
  fake        @1 :Bool;                 # the fake function: no hardware behind it
  mmio        @2 :List(MmioWindow);
  vectors     @3 :UInt32;
  dmaBytes    @4 :UInt64;               # DMAPool quota
  iovaEntries @5 :UInt64;
  launchRecords @6 :UInt64;             # every how many launches of a session one is recorded; 0 = none
  engines     @7 :UInt32;               # how many engine processes may be open; 0 = none are granted
}

struct MmioWindow {
  bar        @0 :UInt32;
  bytes      @1 :UInt64;
  writable   @2 :Bool;
  doorbells  @3 :List(UInt64);   # offsets of the selected 32-bit writes
}

interface DriverGrants {
  # The bootstrap capability of a driver's grant link.
  grantSet @0 () -> (grants :GrantSet);
  dmaPool @1 () -> (pool :DMAPool);
  mmio @2 (bar :UInt32) -> (mmio :DeviceMmio);
  interrupt @3 (vector :UInt32) -> (interrupt :Interrupt);
  auditLog @4 () -> (log :HardwareAuditLog);
  all @5 () -> (grants :GrantSet, pool :DMAPool, log :HardwareAuditLog,
                windows :List(GrantedWindow), vectors :List(GrantedVector));
  # All of the above with one answer: what a driver that waits for its grants has asked for
  # already. It has all windows, and as many of the first vectors as the manager likes; the
  # others are asked for one by one. Once: then E_DENIED. E_UNIMPLEMENTED from a manager that
  # is older.
  engine @6 (group :UInt32) -> (engine :Engine, link :SharedMemory, ended :SharedMemory);
  # The process that holds the nodes of the device, for one group of contexts, which is a
  # tenant. E_BUSY where as many as the policy allows are open, or the group has one;
  # E_DENIED where none is granted; E_IO where it does not start.
}

interface Engine {
  # link is a descriptor of a SOCK_SEQPACKET socket to the process. ended is the read end of
  # a pipe in which nothing is ever written: it hangs up when the process is dead and reaped.
  # The process ends when the last reference is dropped.
  kill @0 () -> ();
  # Returns when the process is dead and reaped, and the device has answered a launch of
  # another one. Idempotent. E_IO: that is not known, and the function is lost.
}

struct GrantedWindow {
  # What mmio and its map answer, in the order of GrantSet.mmio.
  mmio   @0 :DeviceMmio;
  memory @1 :SharedMemory;   # null: the window can only be reached by calls
  bytes  @2 :UInt64;
  offset @3 :UInt64;
}

struct GrantedVector {
  # What interrupt and its eventFd answer, in the order of the vectors.
  interrupt @0 :Interrupt;
  memory    @1 :SharedMemory;
}

interface DeviceMmio {
  # One window of one memory BAR.
  map @0 () -> (bytes :UInt64, memory :SharedMemory, offset :UInt64);
  # attachedFd, to be mapped at offset; read-only unless writable. E_DENIED where the
  # window can only be reached by calls: one of real hardware that is not writable.
  read32 @1 (offset :UInt64) -> (value :UInt32);
  write32 @2 (offset :UInt64, value :UInt32) -> ();
  ring @3 (doorbell :UInt64, value :UInt32) -> ();      # a selected write
}

interface DMAPool {
  # Bounded DMA memory of the function's IOMMU domain.
  allocate @0 (bytes :UInt64) -> (buffer :DMABuffer);
  usage @1 () -> (usedBytes :UInt64, limitBytes :UInt64, entries :UInt64);
  adopt @2 (iova :UInt64, generation :UInt64) -> (buffer :DMABuffer);
  # What another driver of this epoch was lent, for its successor. It can be mapped at
  # once, and freed from when the upgrade is committed; see docs/architecture.md.
}

interface DMABuffer {
  map @0 () -> (iova :UInt64, bytes :UInt64, generation :UInt64, memory :SharedMemory, pinned :Bool);
  # pinned: the device keeps these very pages, so they are scrubbed by writing zeros
  # and never punched out while they are mapped.
  free @1 () -> ();
  # Unmaps the IOVA, scrubs the pages, returns the charge. In that order.
}

interface Interrupt {
  # One vector.
  eventFd @0 () -> (memory :SharedMemory);   # attachedFd: an eventfd
  mask @1 () -> ();
  unmask @2 () -> ();
  ack @3 () -> ();
}

interface HardwareAuditLog {
  append @0 (kind :Text, detail :Text) -> (index :UInt64);
  snapshot @1 (from :UInt64, max :UInt32) -> (records :List(AuditRecord), size :UInt64, root :Data);
  verify @2 () -> (ok :Bool, size :UInt64);
}

struct AuditRecord {
  index @0 :UInt64;
  timeUnixNanos @1 :Int64;
  kind @2 :Text;
  tenant @3 :Text;
  detail @4 :Text;
}
