package clients

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"capgpu/client"
	"capgpu/gpuerr"
	"capgpu/model/lm"
	"capgpu/model/lm/lmtest"
)

const ready = `document.querySelector('#state').dataset.state === 'ready' && !document.querySelector('#send').disabled`

// lastText is the text of the last answer.
const lastText = `[...document.querySelectorAll('.theirs .text')].at(-1).textContent`

func TestPage(t *testing.T) {
	b := newBrowser(t)
	t.Run("streams", func(t *testing.T) { pageStreams(t, b) })
	t.Run("stops", func(t *testing.T) { pageStops(t, b) })
	t.Run("shows the session", func(t *testing.T) { pageShowsSession(t, b) })
	t.Run("text is text", func(t *testing.T) { pageTextIsText(t, b) })
	t.Run("tells the truth", func(t *testing.T) { pageShowsTheTruth(t, b) })
	t.Run("of others", func(t *testing.T) { pageOfOthers(t, b) })
	t.Run("asks for a token", func(t *testing.T) { pageAsksForToken(t, b) })
	t.Run("on a phone", func(t *testing.T) { pageOnPhone(t, b) })
}

// atPace releases tokens at a realistic pace: one each few milliseconds, until the
// test ends.
func atPace(t *testing.T, m *lmtest.Model, each time.Duration) {
	let, done := make(chan struct{}), make(chan struct{})
	m.Pace = let
	t.Cleanup(func() { close(done) })
	go func() {
		for ticker := time.NewTicker(each); ; {
			select {
			case <-ticker.C:
			case <-done:
				ticker.Stop()
				return
			}
			select {
			case let <- struct{}{}:
			case <-done:
			}
		}
	}()
}

func pageStreams(t *testing.T, b *browser) {
	m := lmtest.New()
	let := make(chan struct{})
	m.Pace = let
	p := b.open(t, startServer(t, m, ""))
	p.await(ready)
	p.picture("empty-light")
	p.do(chromedp.SetValue("#tokens", "8", chromedp.ByQuery))
	p.say("two one")
	p.await(`!document.querySelector('#stop').hidden && document.querySelector('#send').hidden`)
	for range 3 {
		let <- struct{}{}
	}

	p.await(lastText + ` === 'one'`) // while it goes on
	require.True(t, p.is(`document.querySelector('.text.going') !== null`))
	time.Sleep(30 * time.Millisecond) // so that there is a speed to report
	for range 5 {
		let <- struct{}{}
	}

	p.await(lastText + ` === 'one two '`)
	p.await(`document.querySelector('.end .rate') !== null && /^[\d.,]+ tokens\/s$/.test(document.querySelector('.end .rate').textContent)`)
	require.Contains(t, p.text(".end"), "8 tokens")
	require.Contains(t, p.text(".end"), "the token limit ended it")
	require.Regexp(t, `tokens/s`, p.text("#speed"))
	require.Equal(t, 8, m.Requests()[0].MaxTokens)
	require.Equal(t, float32(1), m.Requests()[0].Sampling.Temperature)

	// The next message includes the conversation so far, and other settings.
	p.do(chromedp.Evaluate(`{ const t = document.querySelector('#temperature'); t.value = '0.3'; t.dispatchEvent(new Event('input')); }`, nil))
	require.Equal(t, "0.3", p.text("#temperature-now"))
	p.say("x")
	for range 8 {
		let <- struct{}{}
	}

	p.await(`document.querySelectorAll('.end').length === 2`)
	require.Equal(t, lmtest.Tokens("two one\none two \nx"), m.Requests()[1].Tokens)
	require.Equal(t, float32(0.3), m.Requests()[1].Sampling.Temperature)

	// Continue a text instead.
	p.do(chromedp.Click("#fresh", chromedp.ByQuery), chromedp.Evaluate(`document.querySelector('input[value="text"]').click()`, nil))
	require.True(t, p.is(`document.querySelector('#log').childElementCount === 0`))
	p.say("b a")
	for range 8 {
		let <- struct{}{}
	}

	p.await(lastText + ` === 'b aa b a b '`)
	require.Equal(t, "b a", m.Requests()[2].Prompt)
}

func pageStops(t *testing.T, b *browser) {
	m := lmtest.New()
	let := make(chan struct{})
	m.Pace = let
	p := b.open(t, startServer(t, m, ""))
	p.await(ready)
	for i, stop := range []chromedp.Action{chromedp.Click("#stop", chromedp.ByQuery), chromedp.KeyEvent("\x1b")} {
		p.say("b a")
		for range 3 {
			let <- struct{}{}
		}
		p.await(lastText + ` === 'a b'`)
		require.Equal(t, 1, m.Open())
		p.do(stop)
		require.Eventually(t, func() bool { return m.Open() == 0 }, 10*time.Second, time.Millisecond, "and it runs no more")
		p.await(`[...document.querySelectorAll('.end')].at(-1)?.textContent.includes('you stopped it') && document.querySelector('#stop').hidden`)
		require.Contains(t, p.text(".end"), "3 tokens")
		require.Len(t, m.Requests(), i+1)
		p.do(chromedp.Click("#fresh", chromedp.ByQuery))
	}
}

func pageShowsSession(t *testing.T, b *browser) {
	m := lmtest.New()
	m.Set(func(s *lm.Status) {
		s.Device = client.DeviceInfo{Name: "mock0", Backend: "mock", State: client.Ready, Epoch: 3, MemoryBytes: 8 << 30}
		s.Budget = []client.BudgetEntry{
			{Resource: "buffers", Used: 41, Limit: 64, Peak: 42},
			{Resource: "fences", Used: 3, Limit: 1024, Peak: 4},
			{Resource: "deviceTime", Used: 93_400_000_000, Limit: noLimit, Peak: 93_400_000_000},
			{Resource: "deviceMemory", Used: 900 << 20, Limit: 1 << 30, Peak: 1000 << 20},
		}
		s.PagesUsed, s.Pages, s.PagePositions, s.Waiting = 16, 64, 32, 2
		s.Totals.CompletionTokens = 123456
	})

	p := b.open(t, startServer(t, m, ""))
	p.await(ready)
	require.Equal(t, "backwards", p.text("#model"))
	require.Equal(t, "mock0 ready", p.text("#device")+" "+p.text("#device-state"))
	require.Equal(t, "mock · 8.0 GiB · driver 3", p.text("#device-more"))
	budget := p.text("#budget")
	require.Contains(t, budget, "900 MiB of 1.0 GiB")
	require.Contains(t, budget, "93.4 s")
	require.Contains(t, budget, "41 of 64")
	require.NotContains(t, budget, "Fences", "among the rest")
	require.True(t, p.is(`document.querySelector('[data-resource="deviceMemory"] [role="meter"]').getAttribute('aria-valuenow') === '`+"943718400"+`'`))
	require.True(t, p.is(`Math.abs(document.querySelector('[data-resource="deviceMemory"] .fill').offsetWidth / document.querySelector('[data-resource="deviceMemory"] .track').offsetWidth - 900/1024) < 0.02`))
	require.True(t, p.is(`document.querySelector('[data-resource="deviceTime"] [role="meter"]') === null`), "no limit, no bar")
	require.Contains(t, p.text("#cache"), "512 of 2,048 positions")
	require.Contains(t, p.text("#facts"), "123,456")

	// It follows.
	m.Set(func(s *lm.Status) { s.Budget[3].Used = 100 << 20; s.Totals.CompletionTokens += 500 })
	p.await(`document.querySelector('#budget').innerText.includes('100 MiB of 1.0 GiB')`)
	require.NotContains(t, p.text("#facts"), "0.0 tokens/s")
}

// noLimit marks a missing limit in a budget.
const noLimit = ^uint64(0)

func pageTextIsText(t *testing.T, b *browser) {
	m := lmtest.New()
	m.Set(func(s *lm.Status) { s.State, s.Reason = lm.Ready, "" })
	p := b.open(t, startServer(t, m, ""))
	p.await(ready)
	p.do(chromedp.SetValue("#tokens", "64", chromedp.ByQuery))
	p.say(`<img/src=x/onerror=document.title=1> <script>document.title=2</script>`)
	p.await(`document.querySelectorAll('.end').length === 1`)
	require.True(t, p.is(`document.querySelector('#log img, #log script') === null`))
	require.Contains(t, p.text(".theirs .text"), `<script>document.title=2</script>`)
	require.Contains(t, p.text(".mine .text"), `<img/src=x`)
	require.True(t, p.is(`document.title.includes('backwards')`))
}

func pageShowsTheTruth(t *testing.T, b *browser) {
	m := lmtest.New()
	m.FailAfter, m.Failure = 3, gpuerr.New(gpuerr.DeviceLost, "the driver was killed")
	p := b.open(t, startServer(t, m, ""), "503", "429")
	p.await(ready)
	p.do(chromedp.SetValue("#tokens", "5", chromedp.ByQuery))
	p.say("b a")
	p.await(`document.querySelector('.end.bad[role="alert"]')?.innerText.includes('E_DEVICE_LOST: the driver was killed')`)
	require.Equal(t, "a b", p.text(".theirs .text"), "what came before is kept")
	p.picture("failed-light")

	// One that is refused, and then tried again.
	var refused atomic.Bool
	m.Refuse = func(lm.Request) error {
		if refused.CompareAndSwap(false, true) {
			return gpuerr.Refused("positions", 100, 7)
		}
		return nil
	}

	m.Failure = nil
	p.do(chromedp.Click(".end.bad button", chromedp.ByQuery))
	p.await(`document.querySelector('.end.bad')?.innerText.includes('E_QUOTA')`)
	p.do(chromedp.Click(".end.bad button", chromedp.ByQuery))
	p.await(lastText + ` === 'a b a'`)
	require.True(t, p.is(`document.querySelector('.end.bad') === null`))

	for _, s := range []struct {
		state  lm.State
		reason string
	}{{lm.Recovering, "the driver of mock0 went"}, {lm.Loading, ""}, {lm.Revoked, "by the operator"}} {
		m.Set(func(now *lm.Status) { now.State, now.Reason, now.Loaded, now.Bytes = s.state, s.reason, 3<<20, 4<<20 })
		p.await(`document.querySelector('#state').dataset.state === '` + s.state.String() + `'`)
		require.Contains(t, p.text("#banner"), s.reason)
		require.NotEmpty(t, p.text("#banner"))
		require.True(t, p.is(`document.querySelector('#send').disabled`))
		require.Equal(t, s.state != lm.Revoked, p.is(`!document.querySelector('#loading').hidden && document.querySelector('#loading').innerText.includes('3.0 MiB of 4.0 MiB')`))
		p.picture("state-" + s.state.String())
	}

	m.Set(func(now *lm.Status) { now.State, now.Reason = lm.Ready, "" })
	p.await(ready)
	require.True(t, p.is(`document.querySelector('#banner').hidden`))
}

// A page of another origin can neither use a server without a token nor read from
// it: neither across origins, nor under a name that resolves to this machine.
func pageOfOthers(t *testing.T, b *browser) {
	m := lmtest.New()
	url := startServer(t, m, "")
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, "<!doctype html><link rel=icon href=data:,><title>other</title>")
	}))

	defer other.Close()
	p := b.open(t, other.URL, "CORS", "403", "ERR_FAILED", "ERR_BLOCKED")
	fetched := func(options string) (said string) {
		p.do(chromedp.Evaluate(`fetch('`+url+`/v1/completions', `+options+`).then((r) => r.type + ' ' + r.status, (e) => 'failed')`, &said,
			func(e *runtime.EvaluateParams) *runtime.EvaluateParams { return e.WithAwaitPromise(true) }))
		return said
	}

	require.Equal(t, "failed", fetched(`{method: 'POST', body: '{}'}`))
	require.Equal(t, "failed", fetched(`{method: 'POST', body: '{}', headers: {'Content-Type': 'application/json'}}`))
	require.Equal(t, "failed", fetched(`{method: 'POST', body: '{}', mode: 'no-cors'}`), "sent without asking, and refused")
	require.Empty(t, m.Requests())

	rebound := b.open(t, strings.Replace(url, "127.0.0.1", "rebound.example", 1), "403")
	require.Contains(t, rebound.text("body"), "loopback names only")
	require.Empty(t, m.Requests())

	// The test relies on this: the same request from the page's own origin is
	// answered.
	p = b.open(t, url)
	require.Equal(t, "basic 200", fetched(`{method: 'POST', body: '{"max_tokens":1}'}`))
	require.Len(t, m.Requests(), 1)
}

func pageAsksForToken(t *testing.T, b *browser) {
	p := b.open(t, startFake(t, lmtest.New()), "401")
	p.await(`document.querySelector('#state').dataset.state === 'token' && !document.querySelector('#token-card').hidden`)
	p.picture("token-light")
	p.do(chromedp.SendKeys("#token", "wrong\r", chromedp.ByQuery))
	p.await(`document.querySelector('#banner').innerText.includes('wrong')`)
	p.do(chromedp.SendKeys("#token", token+"\r", chromedp.ByQuery))
	p.await(ready)
	require.True(t, p.is(`document.querySelector('#token-card').hidden`))
	p.do(chromedp.SetValue("#tokens", "3", chromedp.ByQuery))
	p.say("b a")
	p.await(lastText + ` === 'a b'`)
}

func pageOnPhone(t *testing.T, b *browser) {
	m := lmtest.New()
	atPace(t, m, 5*time.Millisecond)
	m.Set(func(s *lm.Status) {
		s.Device = client.DeviceInfo{Name: "mock0", Backend: "mock", State: client.Ready, Epoch: 1, MemoryBytes: 8 << 30}
		s.Budget = []client.BudgetEntry{
			{Resource: "deviceMemory", Used: 412 << 20, Limit: 1 << 30, Peak: 600 << 20}, {Resource: "deviceTime", Used: 93e9, Limit: 600e9, Peak: 93e9},
			{Resource: "buffers", Used: 61, Limit: 64, Peak: 61}, {Resource: "programs", Used: 9, Limit: 64, Peak: 9}, {Resource: "fences", Used: 9, Limit: 64, Peak: 9},
		}
	})

	p := b.open(t, startServer(t, m, ""))
	p.await(ready)
	p.do(chromedp.SetValue("#tokens", "200", chromedp.ByQuery))
	p.say("mat. the on sat cat small a time, a upon Once")
	p.await(`document.querySelector('.end') !== null`)
	p.picture("chat-light")
	p.colours("dark")
	p.picture("chat-dark")
	p.size(390, 844)
	fits := `document.documentElement.scrollWidth <= innerWidth`
	require.True(t, p.is(fits))
	p.picture("phone-dark")
	require.True(t, p.is(`getComputedStyle(document.querySelector('#panel')).display === 'none'`))
	p.do(chromedp.Click("#show-panel", chromedp.ByQuery))
	require.True(t, p.is(`getComputedStyle(document.querySelector('#panel')).display !== 'none' && document.querySelector('#show-panel').getAttribute('aria-expanded') === 'true'`))
	require.True(t, p.is(fits))
	p.picture("phone-panel-dark")
	p.colours("light")
	p.picture("phone-panel-light")
	p.size(320, 640)
	require.True(t, p.is(fits), "the narrowest")
	p.do(chromedp.Click("#show-panel", chromedp.ByQuery))
	require.True(t, p.is(fits))
	p.picture("phone-small")

	// Every control has a name for screen readers.
	require.True(t, p.is(`[...document.querySelectorAll('button, input, textarea, [role="meter"]')].every((e) =>
		e.labels?.length > 0 || e.getAttribute('aria-label') || e.textContent.trim() !== '')`))

	// By its button, whatever the system prefers.
	p.do(chromedp.Click("#theme", chromedp.ByQuery), chromedp.Click("#theme", chromedp.ByQuery))
	require.True(t, p.is(`document.documentElement.dataset.theme === 'dark' && getComputedStyle(document.body).backgroundColor === 'rgb(13, 20, 19)'`))
}
