package clients

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// browserPath finds Chromium. Without it the test is skipped, unless
// CAPGPU_REQUIRE_BROWSER requires it.
func browserPath(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	const missing = "SKIPPED: there is no Chromium to try the page in; \"tools/install-deps.sh browser\" installs it"
	if os.Getenv("CAPGPU_REQUIRE_BROWSER") != "" {
		t.Fatal(missing)
	}
	t.Skip(missing)
	return ""
}

// browser is a headless Chromium.
type browser struct{ ctx context.Context }

func newBrowser(t *testing.T) *browser {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(browserPath(t)), chromedp.UserDataDir(profile(t)), chromedp.DisableGPU,
		chromedp.Flag("disable-dev-shm-usage", true),
		chromedp.Flag("host-resolver-rules", "MAP rebound.example 127.0.0.1")) // a name that resolves to this machine
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox) // Chromium's own does not work as root
	}
	ctx, cancel := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(cancel)
	ctx, end := chromedp.NewContext(ctx)
	t.Cleanup(end)
	require.NoError(t, chromedp.Run(ctx)) // starts it
	return &browser{ctx}
}

// profile is a folder for Chromium's files. chromedp waits only for its first
// process; children of that process may write to the folder a little longer, so
// removing it takes several tries, while t.TempDir has only one.
func profile(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "chromium-")
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.Eventually(t, func() bool { return os.RemoveAll(dir) == nil }, awaitTimeout, 10*time.Millisecond)
	})
	return dir
}

// tab is a page in it. A complaint of the page (exceptions, refusals by its content
// policy, …) fails the test, unless mayFail matches it.
type tab struct {
	t   *testing.T
	ctx context.Context
}

// tabTimeout bounds everything that one test does in a tab.
const (
	tabTimeout   = time.Minute
	awaitTimeout = 15 * time.Second
)

func (b *browser) open(t *testing.T, url string, mayFail ...string) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(b.ctx)
	ctx, stop := context.WithTimeout(ctx, tabTimeout)
	var mu sync.Mutex
	var complaints []string
	chromedp.ListenTarget(ctx, func(event any) {
		said := ""
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			said = e.ExceptionDetails.Error()
		case *log.EventEntryAdded:
			said = e.Entry.Text + " " + e.Entry.URL
		}

		for _, m := range mayFail {
			if strings.Contains(said, m) {
				said = ""
			}
		}

		if said != "" {
			mu.Lock()
			defer mu.Unlock()
			complaints = append(complaints, said)
		}
	})

	t.Cleanup(func() {
		stop()
		cancel()
		mu.Lock()
		defer mu.Unlock()
		require.Empty(t, complaints)
	})

	p := &tab{t, ctx}
	// As if the page were visible: a page in the background polls less often.
	p.do(page.BringToFront(), emulation.SetFocusEmulationEnabled(true), log.Enable(), chromedp.EmulateViewport(1280, 800), chromedp.Navigate(url))
	return p
}

func (p *tab) do(actions ...chromedp.Action) {
	p.t.Helper()
	require.NoError(p.t, chromedp.Run(p.ctx, actions...))
}

// await polls until an expression is true. (chromedp's own way to wait makes a
// function of a text, which the page's content policy forbids.)
func (p *tab) await(expression string) {
	p.t.Helper()
	for deadline := time.Now().Add(awaitTimeout); !p.is(expression); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			p.t.Fatalf("%s does not come true; the page says:\n%s", expression, p.text("body"))
		}
	}
}

func (p *tab) text(selector string) (text string) {
	p.t.Helper()
	p.do(chromedp.Evaluate("document.querySelector('"+selector+"')?.innerText ?? ''", &text))
	return text
}

func (p *tab) is(expression string) (yes bool) {
	p.t.Helper()
	p.do(chromedp.Evaluate("Boolean("+expression+")", &yes))
	return yes
}

// say writes a message and sends it by the keyboard.
func (p *tab) say(text string) {
	p.t.Helper()
	// A key as a keyboard sends it: chromedp's types its character even if the page
	// handled it.
	enter := input.DispatchKeyEvent(input.KeyRawDown).WithKey("Enter").WithCode("Enter").WithWindowsVirtualKeyCode(13)
	p.do(chromedp.SendKeys("#prompt", text, chromedp.ByQuery), enter)
}

// picture keeps a screenshot for people, if CAPGPU_SCREENSHOTS names a folder.
func (p *tab) picture(name string) {
	p.t.Helper()
	dir := os.Getenv("CAPGPU_SCREENSHOTS")
	if dir == "" {
		return
	}
	var png []byte
	p.do(chromedp.CaptureScreenshot(&png))
	require.NoError(p.t, os.WriteFile(filepath.Join(dir, name+".png"), png, 0o644))
}

func (p *tab) colours(scheme string) {
	p.t.Helper()
	p.do(emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}))
}

func (p *tab) size(width, height int64) {
	p.t.Helper()
	p.do(chromedp.EmulateViewport(width, height))
}
