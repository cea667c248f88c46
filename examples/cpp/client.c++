// A Cap'n Proto client of the GPU service in C++.
//
//   client SOCKET [COUNT]
//
// connects to a tenant's TENANT.capnp.sock, adds two vectors of COUNT floats on
// device 0 and checks the sum; then it shows how refusals look. It prints one
// line for each thing that went as it should, and exits with 1 at the first that
// did not.
//
// The buffers' memory is shared: a descriptor comes with the capability that
// mapReadWrite returns (getFd), and mmap makes it ordinary memory. No byte of a
// vector travels through a message.

#include "capos.capnp.h"

#include <capnp/rpc-twoparty.h>
#include <kj/async-io.h>
#include <kj/debug.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>

namespace {

// Descriptors that one message may bring. The service sends one at most.
constexpr uint MAX_FDS_PER_MESSAGE = 4;
constexpr uint32_t BLOCK = 256;
constexpr uint64_t TEN_SECONDS = 10'000'000'000;

int connectTo(const char* path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  KJ_REQUIRE(strlen(path) < sizeof(address.sun_path), "the path is too long for a socket", path);
  strcpy(address.sun_path, path);
  int fd;
  KJ_SYSCALL(fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  KJ_SYSCALL(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), path);
  return fd;
}

// A buffer's memory in this process, as floats.
class Mapping {
public:
  Mapping(GpuBuffer::Client buffer, kj::WaitScope& wait) {
    auto mapped = buffer.mapReadWriteRequest().send().wait(wait);
    auto memory = mapped.getMemory();
    int fd = KJ_REQUIRE_NONNULL(memory.getFd().wait(wait), "no descriptor came with the memory");
    bytes = mapped.getLen();
    data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, mapped.getAddr());
    if (data == MAP_FAILED) KJ_FAIL_SYSCALL("mmap", errno);
  }
  ~Mapping() { munmap(data, bytes); }
  KJ_DISALLOW_COPY(Mapping);

  float* floats() { return static_cast<float*>(data); }

private:
  void* data;
  size_t bytes;
};

// expect runs f, which must throw an exception of the given type whose reason
// holds the code.
template <typename F>
void expect(const char* what, kj::Exception::Type type, const char* code, F&& f) {
  KJ_IF_MAYBE(e, kj::runCatchingExceptions(kj::fwd<F>(f))) {
    KJ_REQUIRE(e->getType() == type, "an exception of another type", what, *e);
    KJ_REQUIRE(strstr(e->getDescription().cStr(), code) != nullptr, "another reason", what, *e);
    printf("ok: %s: %s\n", what, e->getDescription().cStr());
    return;
  }
  KJ_FAIL_REQUIRE("no exception", what);
}

GpuBuffer::Client createBuffer(GpuMemorySession::Client session, uint64_t bytes) {
  auto request = session.createBufferRequest();
  request.setBytes(bytes);
  return request.send().getBuffer();  // a promise: the next call may use it already
}

uint32_t idOf(GpuBuffer::Client buffer, kj::WaitScope& wait) {
  return buffer.idRequest().send().wait(wait).getId();
}

void addVectors(GpuSession::Client session, uint32_t count, kj::WaitScope& wait) {
  uint64_t bytes = sizeof(float) * uint64_t(count);
  auto a = createBuffer(session, bytes);
  auto b = createBuffer(session, bytes);
  auto c = createBuffer(session, bytes);
  Mapping memA(a, wait), memB(b, wait), memC(c, wait);
  for (uint32_t i = 0; i < count; i++) {
    memA.floats()[i] = i;
    memB.floats()[i] = 0.5f * i;
  }

  auto fence = session.createFenceRequest().send().getFence();
  auto launch = session.launchKernelRequest();
  launch.setProgram("vecadd_f32");
  launch.setGrid((count + BLOCK - 1) / BLOCK);
  launch.setBlock(BLOCK);
  auto list = launch.initBufferList(3);
  list.set(0, idOf(a, wait));
  list.set(1, idOf(b, wait));
  list.set(2, idOf(c, wait));
  launch.setFence(fence);
  launch.send().wait(wait);

  auto waitRequest = fence.waitRequest();
  waitRequest.setTimeoutNanos(TEN_SECONDS);
  auto end = waitRequest.send().wait(wait);
  KJ_REQUIRE(end.getOk(), "the launch did not end ok", end.getOutcome());
  for (uint32_t i = 0; i < count; i++) {
    float want = memA.floats()[i] + memB.floats()[i];
    KJ_REQUIRE(memC.floats()[i] == want, "a wrong sum", i, memC.floats()[i], want);
  }
  printf("ok: vecadd_f32 of %u elements\n", count);
}

void runPipelined(GpuSession::Client session, kj::WaitScope& wait) {
  // Every capability below is still a promise when it is used, also as an
  // argument; only the ids have to be waited for.
  auto src = createBuffer(session, 4096);
  auto dst = createBuffer(session, 4096);
  auto srcId = idOf(src, wait);
  auto dstId = idOf(dst, wait);
  auto open = session.openProgramRequest();
  open.setName("copy");
  auto program = open.send().getProgram();
  auto fence = session.createFenceRequest().send().getFence();
  auto write = src.writeRequest();
  write.setData(kj::StringPtr("pipelined").asBytes());
  auto written = write.send();
  auto run = session.runProgramRequest();
  run.setProgram(program);
  run.setFence(fence);
  auto bindings = run.initBindings(2);
  bindings[0].setBuffer(srcId);
  bindings[1].setBuffer(dstId);
  auto ran = run.send();
  auto waitRequest = fence.waitRequest();
  waitRequest.setTimeoutNanos(TEN_SECONDS);
  // Calls of a session are served in order: this waits for what the run promised.
  auto end = waitRequest.send().wait(wait);
  ran.wait(wait);
  written.wait(wait);
  KJ_REQUIRE(end.getOk(), end.getOutcome());
  auto read = dst.readRequest();
  read.setLength(9);
  auto back = read.send().wait(wait);
  KJ_REQUIRE(kj::str(back.getData().asChars()) == "pipelined");
  printf("ok: pipelined program with promised capabilities\n");
}

void refusals(GpuDeviceManager::Client manager, GpuSession::Client session, kj::WaitScope& wait) {
  using Type = kj::Exception::Type;

  // The interface is the permission: a memory session cannot launch.
  auto restrict = session.restrictRequest();
  auto policy = restrict.initPolicy();
  policy.setFacet(SessionFacet::MEMORY);
  auto limit = policy.initLimits(1)[0];
  limit.setResource("deviceMemory");
  limit.setAmount(8192);
  auto weak = restrict.send().wait(wait).getSession();
  expect("launch on a memory session", Type::UNIMPLEMENTED, "E_UNIMPLEMENTED", [&]() {
    weak.castAs<GpuSession>().launchKernelRequest().send().wait(wait);
  });
  auto held = createBuffer(weak, 8192);
  idOf(held, wait);
  expect("beyond the quota", Type::OVERLOADED, "E_QUOTA deviceMemory", [&]() {
    idOf(createBuffer(weak, 4096), wait);
  });
  expect("an empty buffer", Type::FAILED, "E_INVALID", [&]() {
    idOf(createBuffer(session, 0), wait);
  });
  expect("no such device, pipelined", Type::FAILED, "E_NO_DEVICE", [&]() {
    auto open = manager.openDeviceRequest();
    open.setCapabilityIndex(99);
    idOf(createBuffer(open.send().getSession(), 4096), wait);
  });
  auto closed = createBuffer(session, 4096);
  closed.closeRequest().send().wait(wait);
  expect("a closed buffer", Type::DISCONNECTED, "E_CLOSED", [&]() { idOf(closed, wait); });

  auto fence = session.createFenceRequest().send().wait(wait).getFence();
  auto brief = fence.waitRequest();
  brief.setTimeoutNanos(1'000'000);
  auto end = brief.send().wait(wait);
  KJ_REQUIRE(!end.getOk() && end.getOutcome().getKind() == OutcomeKind::PENDING);
  printf("ok: a timeout is a result\n");

  session.closeRequest().send().wait(wait);
  expect("a closed session", Type::DISCONNECTED, "E_CLOSED", [&]() {
    idOf(createBuffer(session, 4096), wait);
  });
  auto devices = manager.listDevicesRequest().send().wait(wait);
  KJ_REQUIRE(devices.getDevices().size() > 0);
  printf("ok: the manager is still there\n");
}

void run(const char* path, uint32_t count) {
  auto io = kj::setupAsyncIo();
  auto stream = io.lowLevelProvider->wrapUnixSocketFd(
      connectTo(path), kj::LowLevelAsyncIoProvider::TAKE_OWNERSHIP);
  capnp::TwoPartyVatNetwork network(*stream, MAX_FDS_PER_MESSAGE, capnp::rpc::twoparty::Side::CLIENT);
  auto rpc = capnp::makeRpcClient(network);
  capnp::MallocMessageBuilder message;
  auto vat = message.initRoot<capnp::rpc::twoparty::VatId>();
  vat.setSide(capnp::rpc::twoparty::Side::SERVER);
  auto manager = rpc.bootstrap(vat).castAs<GpuDeviceManager>();

  auto session = manager.openDeviceRequest().send().getSession();
  addVectors(session, count, io.waitScope);
  runPipelined(session, io.waitScope);
  refusals(manager, session, io.waitScope);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2 || argc > 3) {
    fprintf(stderr, "usage: %s SOCKET [COUNT]\n", argv[0]);
    return 2;
  }
  uint32_t count = argc == 3 ? strtoul(argv[2], nullptr, 10) : 1 << 16;
  KJ_IF_MAYBE(e, kj::runCatchingExceptions([&]() { run(argv[1], count); })) {
    fprintf(stderr, "%s: %s\n", argv[0], kj::str(*e).cStr());
    return 1;
  }
  return 0;
}
