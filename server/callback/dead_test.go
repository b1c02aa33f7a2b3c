package callback

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func TestDeadLettersAreListed(t *testing.T) {
	s := newSink(t, status(404))
	o := open(t, Options{MaxDead: 25, PerHostConns: 1})
	for i := range 30 {
		o.Notify(final(s.URL+"/cb/{request_ref}", fmt.Sprint("r", i), nil))
	}
	until(t, "all to be dead", func() bool { return o.Stats().Queued == 0 })
	var refs []string
	cursor := ""
	for page := 0; page == 0 || cursor != ""; page++ {
		items, next, err := o.Dead(cursor, 10)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range items {
			refs = append(refs, d.RequestRef)
			if d.URL != s.URL+"/cb/{request_ref}" || d.State != "DEAD" || d.Attempts != 1 || d.LastError != "HTTP 404" || d.CreatedAt != t0 {
				t.Errorf("%+v", d)
			}
		}
		cursor = next
	}
	if len(refs) != 25 || refs[0] != "r29" || refs[24] != "r5" {
		t.Errorf("%d letters: %v", len(refs), refs)
	}
	if _, _, err := o.Dead("!", 1); err != ErrCursor {
		t.Error(err)
	}
	if st := o.Stats(); st.Outcomes[Evicted] != 5 || st.Outcomes[GivenUp] != 30 {
		t.Errorf("%+v", st)
	}
}

func TestDeadLetterBytes(t *testing.T) {
	s := newSink(t, status(404))
	o := open(t, Options{MaxDeadBytes: 10_000})
	for i := range 30 {
		n := final(s.URL, fmt.Sprint("r", i), nil)
		n.Result = fmt.Appendf(nil, "%q", strings.Repeat("x", 2000))
		o.Notify(n)
	}
	until(t, "all to be dead", func() bool { return o.Stats().Queued == 0 })
	if st := o.Stats(); st.Dead != 3 {
		t.Errorf("%+v", st)
	}
}

func TestRetry(t *testing.T) {
	var code atomic.Int32
	code.Store(410)
	s := newSink(t, func(_ int, _ hit, w http.ResponseWriter) { w.WriteHeader(int(code.Load())) })
	o := open(t, Options{})
	if o.Retry("cb-x") != ErrUnknown {
		t.Error("an unknown id")
	}
	var k track
	o.Notify(final(s.URL, "r", &k))
	until(t, "DEAD/1", func() bool { return k.is(Dead, 1) })
	first, _, _ := o.Dead("", 1)
	code.Store(500)
	if err := o.Retry(first[0].ID); err != nil {
		t.Fatal(err)
	}
	if now, _, _ := o.Dead("", 1); len(now) != 0 {
		t.Error("listed while it is sent again")
	}
	until(t, "DEAD/3", func() bool { return k.is(Dead, 3) })
	again, _, _ := o.Dead("", 1)
	if len(again) != 1 || again[0].ID != first[0].ID || again[0].Attempts != 3 {
		t.Errorf("%+v", again)
	}
	code.Store(200)
	if err := o.Retry(first[0].ID); err != nil {
		t.Fatal(err)
	}
	until(t, "DELIVERED/1", func() bool { return k.is(Delivered, 1) })
	hs := s.seen()
	if a := attempts(hs); a != "<nil>:1/3 <nil>:1/3 <nil>:2/3 <nil>:3/3 <nil>:1/3 " {
		t.Error(a)
	}
	for _, h := range hs {
		if h.id != first[0].ID {
			t.Errorf("id %s, want %s", h.id, first[0].ID)
		}
	}
	if st := o.Stats(); st.Dead != 0 || st.Outcomes[Resent] != 2 || o.Retry(first[0].ID) != ErrUnknown {
		t.Errorf("%+v", st)
	}
}

// A letter that finds no room stays a letter.
func TestRetryWithoutRoom(t *testing.T) {
	o := open(t, Options{PerHostQueue: 1, AttemptTimeout: time.Hour})
	url := silence(t)
	var k track
	o.Notify(final(url, "a", nil))
	o.Notify(final(url, "b", &k))
	items, _, _ := o.Dead("", 1)
	if err := o.Retry(items[0].ID); err == nil || !k.is(Dead, 0) || o.Stats().Dead != 1 {
		t.Errorf("%v, %s, %+v", err, &k, o.Stats())
	}
}

// The log names the receiver but not the URL, and one line a second at most.
func TestLog(t *testing.T) {
	var buf bytes.Buffer
	s := newSink(t, status(404))
	now := time.Now()
	o := open(t, Options{PerHostConns: 1, Logger: slog.New(slog.NewTextHandler(&buf, nil)), Clock: func() time.Time { return now }})
	for i := range 20 {
		o.Notify(final(s.URL+"/secret", fmt.Sprint("r", i), nil))
	}
	if err := o.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if out := buf.String(); strings.Count(out, "\n") != 1 || strings.Contains(out, "secret") || !strings.Contains(out, "HTTP 404") {
		t.Errorf("%s", out)
	}
}

func TestRefusedURL(t *testing.T) {
	o := open(t, Options{})
	var k track
	o.Notify(final("ftp://h/", "r", &k))
	o.Notify(progress("http://h\r\n/", "r", 1))
	if st := o.Stats(); !k.is(Dead, 0) || st.Outcomes[Refused] != 2 || st.Dead != 0 {
		t.Errorf("%s %+v", &k, st)
	}
}
