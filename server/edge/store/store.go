// Package store is what an edge keeps on disk: the requestRefs it handed to devices with
// their answers, and the messages that wait for the link (PROTOCOL.md section 5). It is
// SQLite with a write-ahead log that is synced at every commit; docs/adr/0005-edge-store.md
// says why.
//
// One goroutine, the committer, has the database. Everybody else queues changes, which it
// takes as they have gathered during the last sync and makes stable together (commit.go).
// When a change says that it is done it is on stable storage.
//
// The edge keeps an index of all this in memory and decides what is kept and for how
// long; the store only does what it is told.
package store

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"sync"
	"time"

	"subway/core/wire"
)

// Record is a requestRef that was handed to a device, or was about to be.
type Record struct {
	Ref, Device string
	Deadline    wire.Time // of the command, wall clock
	TimeoutMs   int64
	Answer      int  // bytes of the answer that is kept, 0: none is known
	Confirmed   bool // the Gateway has the answer
}

// Kind is what an Item is; the numbers are on disk.
type Kind uint8

// The kinds of messages that wait for the link.
const (
	Response Kind = 1 // COMMAND_RESPONSE, or an ERROR that ends a request
	Progress Kind = 2
	Status   Kind = 3
)

// Item is a message that waits for the link. Msg is nil where only the index is meant.
type Item struct {
	Seq         int64 // the order in which they came; positive
	Kind        Kind
	Device, Ref string
	Size        int // bytes of the message
	Msg         []byte
}

// Contents is what a store held when it was opened.
type Contents struct {
	Records  []Record
	Items    []Item // in order, without Msg
	Existed  bool   // there was a store, whatever it held
	Epoch    int64  // a number higher than any run before was given
	Distrust wire.Time
	SetAside string // where a file went that could not be used, "" for none
	Reason   string // why, for the operator
}

// Options configure a store.
type Options struct {
	Dir      string        // made if need be; one process at a time
	MaxBytes int64         // hard bound on the file, beyond which changes fail; 0: none
	Now      wire.Time     // wall clock at the start
	Retry    time.Duration // between attempts while the disk refuses; 1 s
	Lazy     time.Duration // how long a change that is not urgent may wait; 5 s
	// Failing is told, on the committer's goroutine, when changes begin to fail (why) and
	// when they succeed again (nil).
	Failing func(why error)
}

// Store is an open store. Its methods may be called from any goroutine; the functions
// passed to them are called on the committer's goroutine and may call methods.
type Store struct {
	opt  Options
	lock *os.File
	db   *sql.DB
	conn *sql.Conn
	stmt statements
	ctx  context.Context
	done chan struct{} // the committer has ended
	wake chan struct{} // capacity 1

	mu      sync.Mutex
	queue   []*change // guarded by mu, as all below
	reads   []func()
	closing bool

	// The committer's own.
	pending []*change // failed and are tried again
	failing error
	tried   time.Time
}

// Close commits what is queued, ends the committer and releases the directory. Changes
// that come later fail. Call it once.
func (s *Store) Close() error {
	s.mu.Lock()
	s.closing = true
	s.mu.Unlock()
	s.signal()
	<-s.done
	var err error
	if n := len(s.pending); n > 0 {
		err = fmt.Errorf("%d changes could not be stored: %w", n, s.failing)
	}
	s.closeDB()
	_ = s.lock.Close() // the lock goes with the descriptor
	return err
}

func (s *Store) closeDB() {
	s.stmt.close() // a database with statements open stays open, and locked
	if s.conn != nil {
		_ = s.conn.Close()
	}
	if s.db != nil {
		_ = s.db.Close() // every commit was synced
	}
}

func (s *Store) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}
