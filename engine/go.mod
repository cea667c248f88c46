module capgpu/engine

go 1.26.0

replace capgpu => ../

require github.com/ebitengine/purego v0.11.3
