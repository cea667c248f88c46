module capgpu/bench

go 1.26.0

replace capgpu => ../

require (
	capgpu v0.0.0-00010101000000-000000000000
	github.com/ebitengine/purego v0.11.3
	golang.org/x/sys v0.49.0
)

require (
	github.com/colega/zeropool v0.0.0-20230505084239-6fb4a4f75381 // indirect
	github.com/containerd/log v0.1.0 // indirect
	github.com/sirupsen/logrus v1.9.4 // indirect
	golang.org/x/net v0.60.0 // indirect
	golang.org/x/sync v0.23.0 // indirect
	golang.org/x/text v0.42.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260817212433-ac3dfec99bb1 // indirect
)

require (
	capnproto.org/go/capnp/v3 v3.1.0-alpha.2
	github.com/containerd/ttrpc v1.2.10
	github.com/stretchr/testify v1.12.1
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	google.golang.org/grpc v1.85.0
	google.golang.org/protobuf v1.36.12
)
