package main

import (
	"os"
	"testing"

	"capgpu/gpu/backend/engine/enginetest"
	"capgpu/internal/leakcheck"
)

func TestMain(m *testing.M) { os.Exit(leakcheck.Run(m, enginetest.Clean)) }
