package faults_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/gpu/backend/mock"
	"capgpu/gpu/backend/mock/faults"
	"capgpu/gpuerr"
)

func TestParseScript(t *testing.T) {
	s, err := faults.ParseScript([]byte(`{"seed": 7, "faults": [
	  {"kind": "hang", "job": 3},
	  {"kind": "slow", "program": "vecadd_f32", "duration": "20ms"},
	  {"kind": "lostCompletion", "op": "copy", "probability": 0.1, "times": 2}
	]}`))
	require.NoError(t, err)
	require.Equal(t, faults.Script{Seed: 7, Faults: []faults.Fault{
		{Kind: faults.Hang, Job: 3},
		{Kind: faults.Slow, Program: "vecadd_f32", Duration: faults.Duration(20 * time.Millisecond)},
		{Kind: faults.LostCompletion, Op: "copy", Probability: 0.1, Times: 2},
	}}, s)
}

func TestEveryKindParses(t *testing.T) {
	for _, kind := range faults.Kinds() {
		f := faults.Fault{Kind: kind}
		if kind == faults.Slow {
			f.Duration = faults.Duration(time.Second)
		}
		want := faults.Script{Faults: []faults.Fault{f}}
		text, err := json.Marshal(want)
		require.NoError(t, err)
		got, err := faults.ParseScript(text)
		require.NoError(t, err, "%s", text)
		require.Equal(t, want, got)
	}
}

func TestParseScriptRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"nothing":             ``,
		"no object":           `[]`,
		"unknown field":       `{"fault": []}`,
		"unknown fault field": `{"faults": [{"kind": "hang", "jobs": 3}]}`,
		"unknown kind":        `{"faults": [{"kind": "explode"}]}`,
		"kind none":           `{"faults": [{"kind": "none"}]}`,
		"no kind":             `{"faults": [{}]}`,
		"kind of number":      `{"faults": [{"kind": 1}]}`,
		"unknown op":          `{"faults": [{"kind": "hang", "op": "jump"}]}`,
		"unknown program":     `{"faults": [{"kind": "hang", "program": "vecadd"}]}`,
		"probability":         `{"faults": [{"kind": "hang", "probability": 1.5}]}`,
		"negative":            `{"faults": [{"kind": "hang", "probability": -1}]}`,
		"slow without time":   `{"faults": [{"kind": "slow"}]}`,
		"time without slow":   `{"faults": [{"kind": "hang", "duration": "1s"}]}`,
		"time without end":    `{"faults": [{"kind": "slow", "duration": "1000h"}]}`,
		"time back":           `{"faults": [{"kind": "slow", "duration": "-1s"}]}`,
		"no time":             `{"faults": [{"kind": "slow", "duration": "soon"}]}`,
		"more":                `{"faults": []} {}`,
		"rest":                `{"faults": []} x`,
		"too many":            `{"faults": [` + strings.Repeat(`{"kind": "hang"},`, 256) + `{"kind": "hang"}]}`,
		"too long":            strings.Repeat(" ", 64<<10) + `{}`,
	} {
		_, err := faults.ParseScript([]byte(text))
		require.ErrorIs(t, err, gpuerr.Invalid, name)
	}
	_, err := mock.New(mock.Options{Script: faults.Script{Faults: []faults.Fault{{}}}})
	require.ErrorIs(t, err, gpuerr.Invalid)
}

func FuzzParseScript(f *testing.F) {
	f.Add([]byte(`{"seed": 7, "faults": [{"kind": "hang", "job": 3}]}`))
	f.Add([]byte(`{"faults": [{"kind": "slow", "program": "spin", "duration": "1h", "probability": 1e-9, "times": 1, "op": "launch"}]}`))
	f.Add([]byte(`{"faults": null}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := faults.ParseScript(text)
		if err != nil {
			require.ErrorIs(t, err, gpuerr.Invalid)
			return
		}
		require.NoError(t, s.Validate())
		again, err := json.Marshal(s)
		require.NoError(t, err)
		if len(again) > 64<<10 {
			return
		}
		back, err := faults.ParseScript(again)
		require.NoError(t, err)
		require.Equal(t, s, back)
	})
}
