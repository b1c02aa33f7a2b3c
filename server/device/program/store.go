package program

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Limits of a store, unless configured.
const (
	defaultMaxBytes = 1 << 30
	defaultTimeout  = time.Hour
	defaultStall    = 30 * time.Second
	defaultEvery    = 500 * time.Millisecond
	defaultFirst    = time.Second
	maxWait         = 30 * time.Second // between two attempts
	maxAttempts     = 6                // in a row that bring no byte
	maxParts        = 4                // downloads begun and not finished, newest kept
	maxURL          = 4 << 10
	maxRecord       = 16 << 10 // bytes of active.json and of job.json
)

// Options say where a store is and what bounds it. Zero values mean the defaults.
type Options struct {
	Dir      string        // made if it is not there; one process at a time
	MaxBytes int64         // of a program; 1 GiB
	Timeout  time.Duration // for a download, from its beginning, over restarts; 1 h
	Stall    time.Duration // without a byte, until a connection is given up; 30 s
	Every    time.Duration // at least, between two reports of DOWNLOADING; 500 ms
	Retry    time.Duration // before the first attempt after one that failed, doubled each time; 1 s
}

// Program is a program that was installed.
type Program struct {
	URL    string `json:"url"`
	SHA256 string `json:"sha256"` // 64 hexadecimal digits, lower case
	Bytes  int64  `json:"bytes"`
}

// Store is the programs of one device. Its methods may be called from any goroutine.
type Store struct {
	opt    Options
	lock   *os.File
	client client
	turn   chan struct{} // whoever holds it installs

	mu      sync.Mutex
	active  *Program // guarded by mu
	damaged error    // guarded by mu: why the active program cannot be played
}

// Open opens a store, and holds the active program against its hash. The error is for the
// operator: the directory cannot be used, or another process uses it. A program that is
// damaged is no error, see Damaged.
func Open(opt Options) (*Store, error) {
	opt = opt.withDefaults()
	if err := os.MkdirAll(opt.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("the directory for programs: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(opt.Dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("the directory for programs: %w", err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = lock.Close()
		return nil, fmt.Errorf("the directory for programs %s is in use by another process", opt.Dir)
	}
	s := &Store{opt: opt, lock: lock, client: newClient(opt), turn: make(chan struct{}, 1)}
	s.active, s.damaged = s.readActive()
	return s, nil
}

func (o Options) withDefaults() Options {
	if o.MaxBytes <= 0 {
		o.MaxBytes = defaultMaxBytes
	}
	for _, d := range []struct {
		v *time.Duration
		d time.Duration
	}{{&o.Timeout, defaultTimeout}, {&o.Stall, defaultStall}, {&o.Every, defaultEvery}, {&o.Retry, defaultFirst}} {
		if *d.v <= 0 {
			*d.v = d.d
		}
	}
	return o
}

// Close gives the directory back. Nothing may be being installed.
func (s *Store) Close() error {
	s.client.http.CloseIdleConnections()
	return s.lock.Close()
}

// Active returns the program that is active; ok is false where there is none.
func (s *Store) Active() (p Program, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.active == nil {
		return Program{}, false
	}
	return *s.active, true
}

// Damaged says why the program that was active cannot be played any more; nil where it
// can, or where there was none.
func (s *Store) Damaged() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.damaged
}

// Open opens a program's bytes, which are those of its hash.
func (s *Store) Open(p Program) (io.ReadCloser, error) { return os.Open(s.path(p.SHA256)) }

func (s *Store) path(name string) string { return filepath.Join(s.opt.Dir, name) }

// readActive reads which program is active and checks its bytes.
func (s *Store) readActive() (*Program, error) {
	var p Program
	if found, err := s.readRecord("active.json", &p); !found {
		return nil, err
	}
	if !validHash(p.SHA256) {
		return nil, errors.New("active.json is damaged")
	}
	sum, _, err := hashFile(s.path(p.SHA256))
	switch {
	case err != nil:
		return nil, fmt.Errorf("the active program cannot be read: %w", err)
	case sum != p.SHA256:
		return nil, errors.New("the active program is damaged: its SHA-256 is " + sum + ", not " + p.SHA256)
	}
	return &p, nil
}

// readRecord decodes one of our small files; found is false where it is not there or does
// not decode.
func (s *Store) readRecord(name string, v any) (found bool, err error) {
	f, err := os.Open(s.path(name))
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxRecord))
	if err == nil {
		err = json.Unmarshal(b, v)
	}
	if err != nil {
		return false, fmt.Errorf("%s is damaged: %w", name, err)
	}
	return true, nil
}

// writeRecord replaces one of our small files: after it the file is the new one on stable
// storage, and whatever cuts it leaves the old one.
func (s *Store) writeRecord(name string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(s.path(name+".new"), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(b, '\n'))
	err = errors.Join(err, f.Sync(), f.Close())
	if err != nil {
		return err
	}
	if err := os.Rename(s.path(name+".new"), s.path(name)); err != nil {
		return err
	}
	return s.syncDir()
}

func (s *Store) syncDir() error {
	d, err := os.Open(s.opt.Dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// activate makes the complete download the active program, in one step, and lets the
// program before it go.
func (s *Store) activate(p Program) error {
	if err := os.Rename(s.path(p.SHA256+".part"), s.path(p.SHA256)); err != nil {
		return err
	}
	if err := s.syncDir(); err != nil {
		return err
	}
	if err := s.writeRecord("active.json", p); err != nil {
		return err
	}
	s.mu.Lock()
	before := s.active
	s.active, s.damaged = &p, nil
	s.mu.Unlock()
	if before != nil && before.SHA256 != p.SHA256 {
		_ = os.Remove(s.path(before.SHA256)) // what stays is swept later
	}
	return nil
}

// sweep removes what no record points to: programs that are not active, and all but the
// newest downloads that were not finished.
func (s *Store) sweep(keep string) {
	entries, err := os.ReadDir(s.opt.Dir)
	if err != nil {
		return
	}
	active, _ := s.Active()
	type part struct {
		name string
		at   time.Time
	}
	var parts []part
	for _, e := range entries {
		sum, partial := strings.CutSuffix(e.Name(), ".part")
		about, err := e.Info()
		switch {
		case err != nil || !validHash(sum) || sum == keep:
		case partial:
			parts = append(parts, part{e.Name(), about.ModTime()})
		case sum != active.SHA256:
			_ = os.Remove(s.path(sum))
		}
	}
	slices.SortFunc(parts, func(a, b part) int { return b.at.Compare(a.at) })
	for _, p := range parts[min(len(parts), maxParts-1):] {
		_ = os.Remove(s.path(p.name))
	}
}
