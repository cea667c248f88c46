package openai

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"capgpu/internal/cmdline"
	"capgpu/model/lm"
)

// metrics are the values for Prometheus: the model's own counts (which include
// requests of other protocols), and measurements of this package.
type metrics struct {
	registry *prometheus.Registry
	began    time.Time

	choices  *prometheus.CounterVec
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
	first    prometheus.Histogram
	between  prometheus.Histogram
}

// Buckets from 0.1 ms (a tiny model) to minutes (a queue).
var (
	tokenBuckets = []float64{1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5}
	waitBuckets  = []float64{1e-3, 2.5e-3, 5e-3, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120}
)

func newMetrics(m lm.Model) *metrics {
	s := &metrics{
		registry: prometheus.NewRegistry(), began: time.Now(),
		choices: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "capgpu_model_http_choices_total", Help: "Answers of the HTTP API that ended: stop, length, cancelled, or the code of an error.",
		}, []string{"finish"}),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "capgpu_model_http_requests_total", Help: "HTTP requests, by route and status.",
		}, []string{"route", "status"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "capgpu_model_http_request_duration_seconds", Help: "From a request's header to the end of its answer.", Buckets: waitBuckets,
		}, []string{"route"}),
		first: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "capgpu_model_time_to_first_token_seconds", Help: "From accepting a request to the first token of its answer, queue and prompt included.", Buckets: waitBuckets,
		}),
		between: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "capgpu_model_inter_token_seconds", Help: "Between tokens of an answer; those that came together share their time evenly.", Buckets: tokenBuckets,
		}),
	}
	s.registry.MustRegister(s.choices, s.requests, s.duration, s.first, s.between, modelCollector{m})
	return s
}

func (s *metrics) serve(w http.ResponseWriter, r *http.Request) {
	promhttp.HandlerFor(s.registry, promhttp.HandlerOpts{DisableCompression: true}).ServeHTTP(w, r)
}

func (s *metrics) ended(finish string) { s.choices.WithLabelValues(finish).Inc() }

// served counts a request. Routes are the mux's patterns, because paths that
// clients make up would make endless series.
func (s *metrics) served(route string, status int, took time.Duration) {
	if route == "" || route == "/" {
		route = "other"
	}
	s.requests.WithLabelValues(route, strconv.Itoa(status)).Inc()
	s.duration.WithLabelValues(route).Observe(took.Seconds())
}

// meter is the times of one answer.
type meter struct {
	s     *metrics
	last  time.Time
	begun bool
}

func (s *metrics) meter() meter { return meter{s: s, last: time.Now()} }

// came records n tokens.
func (t *meter) came(n int) {
	now := time.Now()
	passed := now.Sub(t.last).Seconds()
	t.last = now
	if !t.begun {
		t.begun = true
		t.s.first.Observe(passed)
		return
	}
	for range n {
		t.s.between.Observe(passed / float64(n))
	}
}

// modelCollector asks the model when Prometheus asks.
type modelCollector struct{ m lm.Model }

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("capgpu_model_"+name, help, labels, nil)
}

var (
	descInfo       = describe("info", "1, and which model it is.", "model", "format")
	descBuild      = describe("build_info", "1, and which release or commit the server is.", "version")
	descState      = describe("state", "1 for the state that it is in, 0 for the others.", "state")
	descRequests   = describe("requests_total", "Requests that ended, over all wires.", "end")
	descAccepted   = describe("accepted_requests_total", "Requests that were accepted, over all wires.")
	descPrompt     = describe("prompt_tokens_total", "Tokens of prompts that were computed.")
	descCompletion = describe("completion_tokens_total", "Tokens of answers.")
	descSteps      = describe("steps_total", "Passes through the model.")
	descBusy       = describe("busy_seconds_total", "Time of passes through the model.")
	descRecoveries = describe("recoveries_total", "Times that the model was loaded again after its device had gone.")
	descRunning    = describe("running_requests", "Requests that have a place in the batch.")
	descWaiting    = describe("waiting_requests", "Requests that wait for a place in the batch.")
	descPagesUsed  = describe("cache_used_pages", "Pages of the cache of keys and values that are in use.")
	descPages      = describe("cache_pages", "Pages of the cache of keys and values.")
	descLoaded     = describe("loaded_bytes", "Weights in device memory.")
	descBytes      = describe("weight_bytes", "Weights of the model.")
	descUsed       = describe("budget_used", "What the session holds or has spent of a resource: memory, programBytes and auditBytes in bytes, deviceTime in nanoseconds, others as counts.", "resource")
	descLimit      = describe("budget_limit", "What the session may hold or spend of a resource, in the unit of budget_used; not there if there is no limit.", "resource")
)

// Describe implements prometheus.Collector.
func (c modelCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		descInfo, descBuild, descState, descRequests, descAccepted, descPrompt, descCompletion, descSteps, descBusy, descRecoveries,
		descRunning, descWaiting, descPagesUsed, descPages, descLoaded, descBytes, descUsed, descLimit,
	} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (c modelCollector) Collect(out chan<- prometheus.Metric) {
	count := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
	}

	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}

	i, s := c.m.Info(), c.m.Status()
	gauge(descInfo, 1, i.Name, i.Format)
	gauge(descBuild, 1, cmdline.Revision())
	for state := lm.Loading; state <= lm.Stopped; state++ {
		is := 0.0
		if state == s.State {
			is = 1
		}
		gauge(descState, is, state.String())
	}

	t := s.Totals
	count(descAccepted, float64(t.Requests))
	count(descRequests, float64(t.Finished), "finished")
	count(descRequests, float64(t.Cancelled), "cancelled")
	count(descRequests, float64(t.Failed), "failed")
	count(descPrompt, float64(t.PromptTokens))
	count(descCompletion, float64(t.CompletionTokens))
	count(descSteps, float64(t.Steps))
	count(descBusy, t.Busy.Seconds())
	count(descRecoveries, float64(t.Recoveries))
	gauge(descRunning, float64(s.Running))
	gauge(descWaiting, float64(s.Waiting))
	gauge(descPagesUsed, float64(s.PagesUsed))
	gauge(descPages, float64(s.Pages))
	gauge(descLoaded, float64(s.Loaded))
	gauge(descBytes, float64(s.Bytes))
	for _, b := range s.Budget {
		gauge(descUsed, float64(b.Used), b.Resource)
		if b.Limit != noLimit {
			gauge(descLimit, float64(b.Limit), b.Resource)
		}
	}
}
