package openai

import (
	"math"

	"net/http"
	"strconv"
	"time"

	"capgpu/model/lm"
)

type modelList struct {
	Object string        `json:"object"`
	Data   []modelObject `json:"data"`
}

// modelObject is OpenAI's object, with further members.
type modelObject struct {
	ID         string `json:"id"`
	Object     string `json:"object"`
	Created    int64  `json:"created"`
	OwnedBy    string `json:"owned_by"`
	Context    int    `json:"context_length"`
	Vocab      int    `json:"vocabulary"`
	Dim        int    `json:"embedding_dimensions"`
	Parameters uint64 `json:"parameters"`
	Bytes      uint64 `json:"weight_bytes"`
	Format     string `json:"format"`
}

func (a *api) model() modelObject {
	i := a.m.Info()
	return modelObject{
		ID: i.Name, Object: "model", Created: i.Created.Unix(), OwnedBy: "capgpu",
		Context: i.Context, Vocab: i.Vocab, Dim: i.Dim, Parameters: i.Parameters, Bytes: i.Bytes, Format: i.Format,
	}
}

func (a *api) models(w http.ResponseWriter, r *http.Request) {
	a.writeJSON(w, r, http.StatusOK, modelList{Object: "list", Data: []modelObject{a.model()}})
}

func (a *api) oneModel(w http.ResponseWriter, r *http.Request) {
	if err := a.known(r.PathValue("id")); err != nil {
		a.fail(w, r, err)
		return
	}
	a.writeJSON(w, r, http.StatusOK, a.model())
}

type healthBody struct {
	State  string `json:"state"`
	Reason string `json:"reason,omitempty"`
}

// health is 200 exactly while requests are served. It needs no token: a monitor of
// the service need not be able to use it.
func (a *api) health(w http.ResponseWriter, r *http.Request) {
	s := a.m.Status()
	status := http.StatusOK
	if s.State != lm.Ready {
		status = http.StatusServiceUnavailable
		if s.State == lm.Loading || s.State == lm.Recovering {
			w.Header().Set("Retry-After", strconv.Itoa(int(retryLost/time.Second)))
		}
	}
	a.writeJSON(w, r, status, healthBody{s.State.String(), s.Reason})
}

// statusBody is the data of the page. Sizes are in bytes; a missing limit is null.
type statusBody struct {
	Model    modelObject   `json:"model"`
	State    string        `json:"state"`
	Reason   string        `json:"reason,omitempty"`
	Device   deviceBody    `json:"device"`
	Budget   []budgetBody  `json:"budget"`
	Loading  *loadingBody  `json:"loading,omitempty"` // while it is
	Requests requestsBody  `json:"requests"`
	Cache    cacheBody     `json:"cache"`
	Totals   totalsBody    `json:"totals"`
	Time     time.Duration `json:"time_ns"` // since the server began: for rates
}

type deviceBody struct {
	Name    string `json:"name"`
	Backend string `json:"backend"`
	PCI     string `json:"pci,omitempty"`
	State   string `json:"state"`
	Epoch   uint64 `json:"epoch"` // counts its drivers
	Memory  uint64 `json:"memory_bytes"`
}

type budgetBody struct {
	Resource string  `json:"resource"`
	Used     uint64  `json:"used"`
	Limit    *uint64 `json:"limit"`
	Peak     uint64  `json:"peak"`
}

type loadingBody struct {
	Loaded uint64 `json:"loaded_bytes"`
	Bytes  uint64 `json:"bytes"`
}

type requestsBody struct {
	Running int `json:"running"`
	Waiting int `json:"waiting"`
}

type cacheBody struct {
	Used      int `json:"pages_used"`
	Pages     int `json:"pages"`
	Positions int `json:"page_positions"`
}

type totalsBody struct {
	Requests         uint64 `json:"requests"`
	Finished         uint64 `json:"finished"`
	Cancelled        uint64 `json:"cancelled"`
	Failed           uint64 `json:"failed"`
	PromptTokens     uint64 `json:"prompt_tokens"`
	CompletionTokens uint64 `json:"completion_tokens"`
	Steps            uint64 `json:"steps"`
	Recoveries       uint64 `json:"recoveries"`
}

func (a *api) status(w http.ResponseWriter, r *http.Request) {
	s := a.m.Status()
	t := s.Totals
	out := statusBody{
		Model: a.model(), State: s.State.String(), Reason: s.Reason,
		Device: deviceBody{
			Name: s.Device.Name, Backend: s.Device.Backend, PCI: s.Device.PCIAddress,
			State: s.Device.State.String(), Epoch: s.Device.Epoch, Memory: s.Device.MemoryBytes,
		},
		Budget:   []budgetBody{},
		Requests: requestsBody{s.Running, s.Waiting},
		Cache:    cacheBody{s.PagesUsed, s.Pages, s.PagePositions},
		Totals:   totalsBody{t.Requests, t.Finished, t.Cancelled, t.Failed, t.PromptTokens, t.CompletionTokens, t.Steps, t.Recoveries},
		Time:     time.Since(a.metrics.began),
	}

	if s.State == lm.Loading || s.State == lm.Recovering {
		out.Loading = &loadingBody{s.Loaded, s.Bytes}
	}

	for _, b := range s.Budget {
		line := budgetBody{Resource: b.Resource, Used: b.Used, Peak: b.Peak}
		if b.Limit != noLimit {
			line.Limit = &b.Limit
		}
		out.Budget = append(out.Budget, line)
	}

	a.writeJSON(w, r, http.StatusOK, out)
}

// noLimit marks a missing limit in a budget.
const noLimit = math.MaxUint64
