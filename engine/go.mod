module capgpu/engine

go 1.26.0

replace capgpu => ../

require (
	capgpu v0.0.0-00010101000000-000000000000
	github.com/ebitengine/purego v0.11.3
	github.com/stretchr/testify v1.12.1
	golang.org/x/sys v0.49.0
)

require (
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/mod v0.42.0 // indirect
)
