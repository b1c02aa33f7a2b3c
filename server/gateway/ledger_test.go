package gateway_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"subway/api/contract"
)

// ledger is the book of a race: what was told of each command, over either way.
type ledger struct {
	t     testing.TB
	mu    [64]sync.Mutex // each guards the entries of its residue
	books []book
	open  chan struct{} // a token per command that is not settled
	left  sync.WaitGroup

	finals, refused, progress atomic.Int64
}

// book is what is known of one command. Its ref is its number.
type book struct {
	sent, refused       int8 // times that it was sent, and refused
	told, called        int8 // finals over WebSocket and by callback
	toldAs, calledAs    string
	progress, progress2 int16 // over WebSocket, by callback
	settled             bool
}

func newLedger(t testing.TB, n, window int) *ledger {
	l := &ledger{t: t, books: make([]book, n), open: make(chan struct{}, window)}
	l.left.Add(n)
	return l
}

// begin notes that a command is about to be sent so many times.
func (l *ledger) begin(i, times int) {
	l.open <- struct{}{}
	l.with(i, func(b *book) { b.sent = int8(times) })
}

// with changes an entry, and settles it when everything has been told of it.
func (l *ledger) with(i int, change func(*book)) {
	mu := &l.mu[i%len(l.mu)]
	mu.Lock()
	b := &l.books[i]
	change(b)
	accepted := b.sent - b.refused
	done := !b.settled && (accepted == 0 || accepted == 1 && b.told > 0 && b.called > 0)
	if done {
		b.settled = true
	}
	mu.Unlock()
	if done {
		if accepted == 1 {
			l.finals.Add(1)
		} else {
			l.refused.Add(1)
		}
		<-l.open
		l.left.Done()
	}
}

// number reads the ref that a message is about.
func number(msg []byte) (int, bool) {
	n, err := strconv.Atoi(string(member(msg, "requestRef")))
	return n, err == nil
}

// hear takes what a Backend was told.
func (l *ledger) hear(msg []byte) {
	i, ok := number(msg)
	if !ok {
		return
	}
	word := string(member(msg, "status"))
	switch typ := string(member(msg, "type")); typ {
	case "COMMAND_RESPONSE":
		l.told(i, word)
	case "PROGRESS_UPDATE":
		l.with(i, func(b *book) {
			if b.progress++; b.told > 0 {
				l.t.Errorf("%d: progress after the end, over WebSocket", i)
			}
		})
	case "ERROR":
		switch code := string(member(msg, "code")); code {
		case "TIMEOUT", "CONNECTION_LOST":
			l.told(i, "TIMEOUT")
		case "CANCELLED":
			l.told(i, code)
		case "DEVICE_BROKEN":
			l.told(i, "FAILED")
		case "EDGE_UNAVAILABLE", "OVERLOADED", "DUPLICATE_REQUEST":
			l.with(i, func(b *book) { b.refused++ })
		case "ALREADY_ENDED", "COMMAND_NOT_FOUND":
		default:
			l.t.Errorf("a Backend was told %s", msg)
		}
	default:
		l.t.Errorf("a Backend was told %s", msg)
	}
	if i%500 == 0 {
		contract.ValidateMessage(l.t, contract.FromGateway, bytes.Clone(msg))
	}
}

func (l *ledger) told(i int, word string) {
	l.with(i, func(b *book) { b.told++; b.toldAs = word })
}

// serve starts a receiver of callbacks on this loopback address and returns its URL.
func (l *ledger) serve(ip string) string {
	ln, err := net.Listen("tcp", ip+":0")
	if err != nil {
		l.t.Fatal(err)
	}
	s := &httptest.Server{Listener: ln, Config: &http.Server{Handler: http.HandlerFunc(l.call)}}
	s.Start()
	l.t.Cleanup(s.Close)
	return s.URL
}

// call takes a callback.
func (l *ledger) call(_ http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return
	}
	i, ok := number(body)
	if !ok {
		l.t.Errorf("a callback without a ref: %s", body)
		return
	}
	if i%500 == 0 {
		contract.ValidateCallback(l.t, req.Header, body)
	}
	word := string(member(body, "status"))
	l.with(i, func(b *book) {
		if word != "IN_PROGRESS" {
			b.called++
			b.calledAs = word
			return
		}
		if b.progress2++; b.called > 0 {
			l.t.Errorf("%d: progress after the end, by callback", i)
		}
	})
}

// balance checks the book of every command.
func (l *ledger) balance() (ended map[string]int) {
	ended = make(map[string]int)
	for i := range l.books {
		b := &l.books[i]
		accepted := b.sent - b.refused
		if accepted < 0 || accepted > 1 || b.told != accepted || b.called != accepted || b.toldAs != b.calledAs {
			l.t.Errorf("%d: %s", i, fmt.Sprintf("%+v", *b))
		}
		if b.progress2 > b.progress {
			l.t.Errorf("%d: %d times progress by callback, %d over WebSocket", i, b.progress2, b.progress)
		}
		l.progress.Add(int64(b.progress))
		if accepted == 1 {
			ended[b.toldAs]++
		}
	}
	return ended
}
