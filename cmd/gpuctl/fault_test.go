package main

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/gpu"
	"capgpu/outcome"
)

// An access that the IOMMU refused is distinguished from other errors of the
// device, and counted.
func TestFaultsInWords(t *testing.T) {
	fault := explain(outcome.Outcome{Kind: outcome.Failed, Cause: outcome.IOMMUFault}, nil, nil)
	require.Contains(t, fault, "IOMMU")
	require.NotEqual(t, fault, explain(outcome.Outcome{Kind: outcome.Failed, Cause: outcome.DeviceError}, nil, nil))

	text, err := json.Marshal(gpu.Status{Faults: 12, Resets: 2})
	require.NoError(t, err)
	var st status
	require.NoError(t, json.Unmarshal(text, &st))
	require.Equal(t, "edu0 was reset 2 times since its driver started.\n"+
		"edu0 reached 12 times for memory that it was not granted; the IOMMU refused. \"gpuctl audit\" has the records.\n", troubleText("edu0", st))
	require.Empty(t, troubleText("edu0", status{}))
}
