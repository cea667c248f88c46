package openai

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"math"
	"net/http"

	"capgpu/gpuerr"
)

// embedding is POST /v1/embeddings.
type embedding struct {
	texts  []string
	base64 bool
}

func (a *api) parseEmbedding(f fields) (q embedding, err error) {
	model, err := f.text("model", maxNameBytes)
	if err != nil {
		return q, err
	}
	if err = a.known(model); err != nil {
		return q, err
	}

	format, err := f.text("encoding_format", maxNameBytes)
	switch {
	case err != nil:
		return q, err
	case format != "" && format != "float" && format != "base64":
		return q, invalid("encoding_format", "%q is neither float nor base64", clip(format))
	}

	q.base64 = format == "base64"
	dim := int64(a.m.Info().Dim)
	dimensions, err := f.integer("dimensions", 1, math.MaxInt32, dim)
	if err != nil {
		return q, err
	}
	if dimensions != dim {
		return q, unsupported("dimensions", "this model has %d, and nothing cuts them", dim)
	}

	q.texts, err = a.inputs(f)
	return q, err
}

// inputs is a string or a list of strings.
func (a *api) inputs(f fields) (texts []string, err error) {
	const name = "input"
	raw, ok := f[name]
	if !ok {
		return nil, invalid(name, "is missing")
	}

	add := func(param string, raw json.RawMessage) error {
		if raw[0] != '"' && (raw[0] == '[' || raw[0] >= '0' && raw[0] <= '9') {
			return unsupported(param, "tokens: this model embeds text only")
		}
		s, err := textOf(param, raw, len(raw))
		if err == nil && s == "" {
			err = invalid(param, "is empty")
		}
		texts = append(texts, s)
		return err
	}

	if raw[0] != '[' {
		return texts, add(name, raw)
	}

	err = each(name, raw, a.o.MaxInputs, func(i int, raw json.RawMessage) error { return add(at(name, i), raw) })
	if err == nil && len(texts) == 0 {
		err = invalid(name, "is empty")
	}

	return texts, err
}

type embeddingList struct {
	Object string          `json:"object"`
	Data   []embeddingData `json:"data"`
	Model  string          `json:"model"`
	Usage  embeddingUsage  `json:"usage"`
}

type embeddingData struct {
	Object    string `json:"object"`
	Index     int    `json:"index"`
	Embedding any    `json:"embedding"` // []float32, or base64 of them in little-endian order
}

type embeddingUsage struct {
	PromptTokens int `json:"prompt_tokens"`
	TotalTokens  int `json:"total_tokens"`
}

func (a *api) embeddings(_ context.Context, f fields) (http.HandlerFunc, error) {
	q, err := a.parseEmbedding(f)
	return func(w http.ResponseWriter, r *http.Request) { a.embed(w, r, &q) }, err
}

func (a *api) embed(w http.ResponseWriter, r *http.Request, q *embedding) {
	vectors, u, err := a.m.Embed(r.Context(), q.texts)
	if err == nil && len(vectors) != len(q.texts) {
		err = gpuerr.New(gpuerr.Internal, "%d vectors for %d texts", len(vectors), len(q.texts))
	}
	if err != nil {
		a.fail(w, r, err)
		return
	}

	out := embeddingList{Object: "list", Model: a.m.Info().Name, Usage: embeddingUsage{u.PromptTokens, u.PromptTokens}}
	for i, v := range vectors {
		d := embeddingData{Object: "embedding", Index: i, Embedding: v}
		if q.base64 {
			d.Embedding = base64.StdEncoding.EncodeToString(littleEndian(v))
		}
		out.Data = append(out.Data, d)
	}

	a.writeJSON(w, r, http.StatusOK, out)
}

func littleEndian(v []float32) []byte {
	b := make([]byte, 0, 4*len(v))
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return b
}
