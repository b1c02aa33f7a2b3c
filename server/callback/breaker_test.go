package callback

import (
	"fmt"
	"net"
	"net/http"
	"testing"
	"time"
)

// A host that is not there costs few attempts, however much waits for it; when it is back
// all of that arrives.
func TestBreaker(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	other := newSink(t, nil)
	o := open(t, Options{Break: 20 * time.Millisecond, FirstDelay: time.Hour})
	const n = 500
	for i := range n {
		o.Notify(final("http://"+addr+"/", fmt.Sprint("r", i), nil))
	}
	until(t, "the host to be left alone", func() bool { return o.Stats().Broken == 1 })
	tried := func() uint64 { return o.Stats().Outcomes[Retried] }
	if got := tried(); got < breakAfter || got > breakAfter+8 {
		t.Errorf("%d attempts before the break", got)
	}
	o.Notify(final(other.URL, "r", nil))
	other.wait(1) // others have their turn
	first := tried()
	until(t, "it to be tried now and then", func() bool { return tried() >= first+3 })
	if st := o.Stats(); st.Busy > 1 {
		t.Errorf("%+v", st)
	}
	if l, err = net.Listen("tcp", addr); err != nil {
		t.Skip("the address was taken meanwhile: ", err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})}
	served := make(chan struct{})
	go func() {
		_ = srv.Serve(l)
		close(served)
	}()
	until(t, "the rest to arrive", func() bool { st := o.Stats(); return st.Outcomes[Sent] == n+1-st.Outcomes[Retried] })
	if st := o.Stats(); st.Broken != 0 || st.Dead != 0 {
		t.Errorf("%+v", st)
	}
	_ = srv.Close()
	<-served
}

// While a host is slow only the newest progress of each request waits for it, and never
// instead of the final notice.
func TestProgressForASlowHost(t *testing.T) {
	release := make(chan struct{})
	s := newSink(t, func(n int, _ hit, _ http.ResponseWriter) {
		if n == 0 {
			<-release
		}
	})
	o := open(t, Options{PerHostConns: 1})
	o.Notify(progress(s.URL, "first", 1))
	for i := range 20 {
		for _, ref := range []string{"a", "b", "c"} {
			o.Notify(progress(s.URL, ref, i))
		}
	}
	o.Notify(final(s.URL, "a", nil))
	close(release)
	until(t, "all to be sent", func() bool { return o.Stats().Queued == 0 })
	last := map[string]string{}
	for _, h := range s.seen() {
		last[h.ref] += fmt.Sprint(h.json["status"], h.json["progress"], " ")
	}
	if last["a"] != "COMPLETED<nil> " || last["b"] != "IN_PROGRESS19 " || last["c"] != "IN_PROGRESS19 " {
		t.Errorf("%v", last)
	}
}
