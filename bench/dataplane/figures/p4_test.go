package figures

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/bench/dataplane/report"
	"capgpu/model"
)

// TestWithoutStories: if the real model is missing, one of its shape replaces it,
// and the run notes that.
func TestWithoutStories(t *testing.T) {
	t.Setenv("CAPGPU_MODELS", "")
	t.Chdir(t.TempDir())
	var said string
	e := &Env{Options: Options{Say: func(format string, args ...any) { said += fmt.Sprintf(format, args...) }}}
	f, err := stories(e)
	require.NoError(t, err)
	defer f.Close()
	require.Contains(t, said, "SKIPPED: stories260K is not there")
	require.Equal(t, 64, f.Config.Dim)
	require.Equal(t, 512, f.Config.Vocab)
}

// TestEachModel: rows come in the order of the models, and an error names its model.
func TestEachModel(t *testing.T) {
	e := &Env{Options: Options{Models: ModelNames[:1], Say: func(string, ...any) {}}}
	rows, err := e.eachModel(func(m *languageModel, f *model.File) ([]report.Row, error) {
		return []report.Row{{ID: m.name}}, nil
	})
	require.NoError(t, err)
	require.Equal(t, []report.Row{{ID: "stories260K"}}, rows)
	broken := errors.New("broken")
	_, err = e.eachModel(func(*languageModel, *model.File) ([]report.Row, error) { return nil, broken })
	require.ErrorIs(t, err, broken)
	require.ErrorContains(t, err, "stories260K")
	e.Models = []string{"1t"}
	_, err = e.eachModel(nil)
	require.ErrorContains(t, err, "1t")
	for _, name := range ModelNames {
		require.Contains(t, languageModels, name)
	}
}
