package report

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/html"
)

func htmlOf(t *testing.T, rep *Report) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := rep.WriteHTML(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// The page is well-formed, needs nothing from elsewhere, runs nothing, and hostile texts
// stay texts.
func TestPageIsWholeAndHarmless(t *testing.T) {
	for _, run := range runs {
		t.Run(run.name, func(t *testing.T) {
			text := htmlOf(t, run.make())
			checkNesting(t, text)
			doc, err := html.Parse(bytes.NewReader(text))
			if err != nil {
				t.Fatal(err)
			}
			ids := map[string]bool{}
			var refs []string
			for n := range doc.Descendants() {
				if n.Type != html.ElementNode {
					continue
				}
				refs = append(refs, checkElement(t, n, ids)...)
			}
			for _, ref := range refs {
				if !ids[ref] {
					t.Errorf("nothing has the id %q", ref)
				}
			}
			for _, word := range []string{"NaN", "Inf", "ZgotmplZ", "%!", "url(", "@import"} {
				if bytes.Contains(text, []byte(word)) {
					t.Errorf("the page has %q", word)
				}
			}
		})
	}
}

// checkElement looks at one element and returns the ids it points to.
func checkElement(t *testing.T, n *html.Node, ids map[string]bool) (refs []string) {
	if slices.Contains([]string{"script", "iframe", "object", "embed", "img", "image", "use", "form", "a"}, n.Data) {
		t.Errorf("the page has a <%s>", n.Data)
	}
	for _, a := range n.Attr {
		switch {
		case a.Key == "id":
			if ids[a.Val] {
				t.Errorf("two have the id %q", a.Val)
			}
			ids[a.Val] = true
		case a.Key == "aria-labelledby":
			refs = append(refs, strings.Fields(a.Val)...)
		case a.Key == "href" && a.Val == "data:,":
		case a.Key == "src" || a.Key == "href" || a.Key == "srcset" || strings.HasPrefix(a.Key, "on"):
			t.Errorf("<%s %s=%q>", n.Data, a.Key, a.Val)
		}
	}
	return refs
}

// checkNesting is stricter than a browser: every element that is opened is closed, in order.
func checkNesting(t *testing.T, text []byte) {
	t.Helper()
	var open []string
	z := html.NewTokenizer(bytes.NewReader(text))
	for {
		switch kind := z.Next(); kind {
		case html.ErrorToken:
			if len(open) > 0 {
				t.Errorf("not closed: %v", open)
			}
			return
		case html.StartTagToken:
			name, _ := z.TagName()
			if s := string(name); s != "meta" && s != "link" {
				open = append(open, s)
			}
		case html.EndTagToken:
			name, _ := z.TagName()
			if len(open) == 0 || open[len(open)-1] != string(name) {
				t.Fatalf("</%s> closes %v", name, open)
			}
			open = open[:len(open)-1]
		}
	}
}

// A reader must learn the verdicts without colours, and first the one that voids the rest.
func TestVerdictsAreInWords(t *testing.T) {
	good, bad := string(htmlOf(t, steadyWithBooks())), string(htmlOf(t, broken()))
	for _, c := range []struct{ page, want string }{
		{good, "The books balance"}, {good, "The generator was not the bottleneck"},
		{bad, "The books do not balance"}, {bad, "The generator was the bottleneck"},
		{bad, "These figures are about it, not the gateway"}, {bad, "and 35 more"}, {bad, "knee 8,000/s"},
	} {
		if !strings.Contains(c.page, c.want) {
			t.Errorf("the page does not say %q", c.want)
		}
	}
	if strings.Index(bad, "The generator was") > strings.Index(bad, "The books do") {
		t.Error("the generator's verdict does not come first")
	}
}

// visits serves one page, and as the browser's proxy sees each request it makes.
type visits struct {
	page     []byte
	mu       sync.Mutex
	requests []request // guarded by mu
}

type request struct{ host, path string }

func (v *visits) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	v.mu.Lock()
	v.requests = append(v.requests, request{r.Host, r.URL.Path})
	v.mu.Unlock()
	if r.Method != http.MethodGet || r.URL.Path != "/report" {
		http.Error(w, "nothing else is here", http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Write(v.page)
}

// Chromium shows the page without a console message, and asks for nothing but the page:
// all its requests go to this test.
func TestBrowserShowsIt(t *testing.T) {
	browser, err := exec.LookPath("chromium")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("CI must have chromium")
		}
		t.Skip("chromium is not installed")
	}
	for _, run := range runs {
		t.Run(run.name, func(t *testing.T) {
			dom, console, asked := browse(t, browser, htmlOf(t, run.make()))
			if !strings.Contains(dom, "<h1>") || !strings.Contains(dom, "</footer>") {
				t.Errorf("the DOM is not whole: %.300s", dom)
			}
			if len(console) > 0 || !slices.Equal(asked, []string{"/report"}) {
				t.Errorf("console: %q, requests: %q", console, asked)
			}
		})
	}
	t.Run("the test would notice", func(t *testing.T) {
		_, console, asked := browse(t, browser, []byte(`<title>x</title><img src="/pixel"><img src="http://elsewhere.example/pixel">`+
			`<script>console.error("seen")</script>`))
		if !strings.Contains(strings.Join(console, ""), "seen") || !slices.Contains(asked, "/pixel") || !slices.Contains(asked, "elsewhere.example/pixel") {
			t.Errorf("console: %q, requests: %q", console, asked)
		}
	})
}

// ownHosts are what the browser asks on its own account, with and without a page: for the
// time and for updates. The proxy refuses it all.
var ownHosts = []string{".google.com", ".google.com:443", ".googleapis.com", ".googleapis.com:443"}

// browse shows a page in the browser; asked has the paths on the page's own host, and
// host and path of others.
func browse(t *testing.T, browser string, page []byte) (dom string, console, asked []string) {
	t.Helper()
	v := &visits{page: page}
	server := httptest.NewServer(v)
	defer server.Close()
	address := server.Listener.Addr().String()
	dom, log := dumpDOM(t, browser, address)
	for line := range strings.Lines(log) {
		if strings.Contains(line, "CONSOLE") {
			console = append(console, line)
		}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, r := range v.requests {
		own := func(suffix string) bool { return strings.HasSuffix(r.host, suffix) }
		if !slices.ContainsFunc(ownHosts, own) {
			asked = append(asked, strings.TrimPrefix(r.host+r.path, address))
		}
	}
	return dom, console, asked
}

func dumpDOM(t *testing.T, browser, address string) (dom, log string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	// A directory of its own, which may outlive the test by a moment: the browser's
	// processes end after it and still write there.
	dir, err := os.MkdirTemp("", "report-browser")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	cmd := exec.CommandContext(ctx, browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
		"--disable-component-update", "--disable-sync", "--no-first-run", "--disable-dev-shm-usage", "--enable-logging=stderr",
		"--user-data-dir="+dir, "--proxy-server=http://"+address, "--proxy-bypass-list=<-loopback>",
		"--dump-dom", "http://"+address+"/report")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, errs.String())
	}
	return out.String(), errs.String()
}
