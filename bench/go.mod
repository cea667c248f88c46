module capgpu/bench

go 1.26.0

replace capgpu => ../

require github.com/ebitengine/purego v0.11.3

require (
	github.com/stretchr/testify v1.12.1
	go.yaml.in/yaml/v3 v3.0.5 // indirect
)
