#include "manager/session/node_sessions.h"

#include <utility>

#include "cluster/coding/link_coder.h"
#include "cluster/mesh/mesh.h"
#include "cluster/mesh/session_host.h"
#include "copy/transport_thread.h"
#include "manager/session/session_devices.h"
#include "manager/session/sessions.h"

namespace kvbm::manager {

namespace {

// Returns the function that registers device memory with the transport; empty if the transport cannot, or must not.
std::function<Status(MutableBytes)> device_memory_of(copy::Transport& transport, NodeOptions::DeviceRdma rdma,
                                                     const Log* log) {
  using Rdma = NodeOptions::DeviceRdma;
  const bool takes = (transport.features() & KVBM_TRANSPORT_DEVICE) != 0;
  if (!takes && rdma == Rdma::on && log != nullptr) {
    log->write(LogLevel::warning, "node",
               "device.rdma is on, and the transport takes no device memory: " + transport.describe());
  }
  if (!takes || rdma == Rdma::off) return nullptr;
  return [&transport](MutableBytes memory) { return transport.add_device_memory(memory).status(); };
}

}  // namespace

std::shared_ptr<NodeSessions> NodeSessions::create(const Environment& environment, Options options, cluster::Mesh& mesh,
                                                   copy::TransportThread& links) {
  const std::shared_ptr<NodeSessions> made(new NodeSessions());
  made->devices_ =
      std::make_unique<SessionDevices>(*environment.executor, links, environment.log, options.boot, options.rdma);
  cluster::SessionHost::Options host;
  host.staging_bytes = options.staging_bytes;
  host.add_device_memory = device_memory_of(links.transport(), options.rdma, environment.log);
  host.staging_mapped = [devices = made->devices_.get()](std::shared_ptr<Arena> arena) {
    devices->add_staging(std::move(arena));
  };
  host.coder = std::move(options.coder);
  host.core = environment.executor;
  host.in_place = std::move(options.in_place);
  made->host_ = std::make_unique<cluster::SessionHost>(host, mesh, environment.log);
  mesh.serve_sessions(made->host_.get());
  made->sessions_ = std::make_unique<Sessions>(*made->host_, links, *made->devices_);
  return made;
}

NodeSessions::~NodeSessions() {
  host_.reset();  // its offers and sessions end before what their callers used
}

cluster::SessionCounts NodeSessions::counts() const { return host_->counts(); }

void NodeSessions::close() { sessions_->close(); }

void NodeSessions::detach() { host_->detach(); }

}  // namespace kvbm::manager
