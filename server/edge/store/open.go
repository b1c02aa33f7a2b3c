package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
	"modernc.org/sqlite" // the driver, and its errors
	sqlite3 "modernc.org/sqlite/lib"

	"subway/core/wire"
)

// format is the version of the tables, kept in the file's user_version.
const format = 1

// distrustFor is longer than any command that was handed over before can be in flight
// (PROTOCOL.md section 3: 24 h) and its record be kept.
const distrustFor = 25 * time.Hour

const fileName = "store.db"

// unusable is a file that is there and cannot be used, whatever the reason.
type unusable struct{ reason string }

func (u *unusable) Error() string { return u.reason }

// Open locks the directory, opens the store in it and returns what it holds. A file that
// is damaged or was written by a newer version is set aside, whole, and an empty store
// takes its place: Contents says so, and until when refs that are not known may
// nevertheless have been handed over. The error is for the operator.
func Open(opt Options) (*Store, *Contents, error) {
	if opt.Retry <= 0 {
		opt.Retry = time.Second
	}
	if opt.Lazy <= 0 {
		opt.Lazy = 5 * time.Second
	}
	lock, err := lockDir(opt.Dir)
	if err != nil {
		return nil, nil, err
	}
	s := &Store{opt: opt, lock: lock, ctx: context.Background(), done: make(chan struct{}), wake: make(chan struct{}, 1)}
	c, err := s.openOrReplace()
	if err != nil {
		s.closeDB()
		_ = lock.Close()
		return nil, nil, fmt.Errorf("data directory %s: %w", opt.Dir, err)
	}
	go s.run()
	return s, c, nil
}

func lockDir(path string) (*os.File, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(path, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = lock.Close()
		return nil, fmt.Errorf("data directory %s is in use by another process", path)
	}
	return lock, nil
}

func (s *Store) openOrReplace() (*Contents, error) {
	path := filepath.Join(s.opt.Dir, fileName)
	_, missing := os.Stat(path)
	c, err := s.openFile(path)
	var bad *unusable
	if err == nil {
		c.Existed = missing == nil
	}
	if !errors.As(err, &bad) {
		return c, err
	}
	s.closeDB()
	aside, err := setAside(path, time.Unix(0, int64(s.opt.Now)))
	if err != nil {
		return nil, fmt.Errorf("the store cannot be used (%s) and not be set aside: %w", bad.reason, err)
	}
	if c, err = s.openFile(path); err != nil {
		return nil, err
	}
	c.Existed, c.SetAside, c.Reason, c.Distrust = true, aside, bad.reason, s.opt.Now+wire.Time(distrustFor)
	_, err = s.conn.ExecContext(s.ctx, "INSERT OR REPLACE INTO meta VALUES ('distrust', ?)", int64(c.Distrust))
	return c, err
}

// setAside renames the database with all that belongs to it, so that it can be opened
// again under its new name.
func setAside(path string, now time.Time) (string, error) {
	aside := path + ".set-aside-" + now.UTC().Format("20060102T150405.000")
	for _, part := range []string{"", "-wal", "-journal"} {
		if err := os.Rename(path+part, aside+part); err != nil && !os.IsNotExist(err) {
			return "", err
		}
	}
	return aside, nil
}

// openFile opens the database, makes the tables if it is new, and reads everything.
func (s *Store) openFile(path string) (*Contents, error) {
	if err := plausible(path); err != nil {
		return nil, err
	}
	name := (&url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath()}).String()
	var err error
	if s.db, err = sql.Open("sqlite", name); err != nil {
		return nil, err
	}
	s.db.SetMaxOpenConns(1)
	if s.conn, err = s.db.Conn(s.ctx); err != nil {
		return nil, judge(err)
	}
	// With the lock held for good, SQLite needs no shared memory file.
	for _, pragma := range []string{"locking_mode = EXCLUSIVE", "journal_mode = WAL", "synchronous = FULL", "journal_size_limit = 16777216", "cell_size_check = ON", "trusted_schema = OFF"} {
		if _, err := s.conn.ExecContext(s.ctx, "PRAGMA "+pragma); err != nil {
			return nil, judge(err)
		}
	}
	if err := s.checkFormat(); err != nil {
		return nil, err
	}
	if s.opt.MaxBytes > 0 {
		if _, err := s.conn.ExecContext(s.ctx, fmt.Sprintf("PRAGMA max_page_count = %d", s.opt.MaxBytes/4096+1)); err != nil {
			return nil, judge(err)
		}
	}
	if err := s.stmt.prepare(s.ctx, s.conn); err != nil {
		return nil, judge(err)
	}
	c, err := s.load()
	if err != nil {
		return nil, judge(err)
	}
	return c, nil
}

// plausible finds what SQLite would take for a new database though it was one already.
func plausible(path string) error {
	st, err := os.Stat(path)
	switch {
	case err == nil && st.Size() == 0:
		return &unusable{"the file is empty"}
	case err == nil && !st.Mode().IsRegular():
		return fmt.Errorf("%s is not a file", path)
	case os.IsNotExist(err):
		if _, err := os.Stat(path + "-wal"); err == nil {
			return &unusable{"the file is gone and its log is not"}
		}
		return nil
	}
	return err
}

func (s *Store) checkFormat() error {
	var version, tables int
	var healthy string
	if err := s.conn.QueryRowContext(s.ctx, "PRAGMA user_version").Scan(&version); err != nil {
		return judge(err)
	}
	if version > format {
		return &unusable{fmt.Sprintf("it was written by a newer version: its format is %d, this version knows %d", version, format)}
	}
	if err := s.conn.QueryRowContext(s.ctx, "PRAGMA quick_check(1)").Scan(&healthy); err != nil {
		return judge(err)
	}
	if healthy != "ok" {
		return &unusable{"it is damaged: " + healthy}
	}
	if err := s.conn.QueryRowContext(s.ctx, "SELECT count(*) FROM sqlite_schema WHERE type = 'table'").Scan(&tables); err != nil {
		return judge(err)
	}
	switch {
	case version == format:
		return nil
	case tables > 0:
		return &unusable{"it is a database of something else"}
	}
	_, err := s.conn.ExecContext(s.ctx, schema)
	return judge(err)
}

// schema is one transaction, so that there is never a half of it.
const schema = `BEGIN IMMEDIATE;
CREATE TABLE meta(name TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT;
CREATE TABLE record(ref TEXT PRIMARY KEY, device TEXT NOT NULL, deadline INTEGER NOT NULL, timeout INTEGER NOT NULL,
	confirmed INTEGER NOT NULL DEFAULT 0, answer BLOB) STRICT;
CREATE TABLE item(seq INTEGER PRIMARY KEY, kind INTEGER NOT NULL, device TEXT NOT NULL, ref TEXT NOT NULL, msg BLOB NOT NULL) STRICT;
PRAGMA user_version = 1;
COMMIT;`

// judge tells a file that cannot be used from a disk that cannot be used.
func judge(err error) error {
	var e *sqlite.Error
	if errors.As(err, &e) {
		switch e.Code() & 0xff {
		case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_MISMATCH:
			return &unusable{"it is damaged: " + e.Error()}
		}
	}
	return err
}

// load reads the index and raises the epoch.
func (s *Store) load() (*Contents, error) {
	c := &Contents{}
	if err := s.loadMeta(c); err != nil {
		return nil, err
	}
	rows, err := s.conn.QueryContext(s.ctx, "SELECT ref, device, deadline, timeout, confirmed, coalesce(length(answer), 0) FROM record")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var r Record
		if err := rows.Scan(&r.Ref, &r.Device, &r.Deadline, &r.TimeoutMs, &r.Confirmed, &r.Answer); err != nil {
			return nil, err
		}
		c.Records = append(c.Records, r)
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	items, err := s.conn.QueryContext(s.ctx, "SELECT seq, kind, device, ref, length(msg) FROM item ORDER BY seq")
	if err != nil {
		return nil, err
	}
	defer items.Close()
	for items.Next() {
		var i Item
		if err := items.Scan(&i.Seq, &i.Kind, &i.Device, &i.Ref, &i.Size); err != nil {
			return nil, err
		}
		c.Items = append(c.Items, i)
	}
	return c, items.Err()
}

func (s *Store) loadMeta(c *Contents) error {
	value := func(name string) (v int64, err error) {
		err = s.conn.QueryRowContext(s.ctx, "SELECT coalesce(max(value), 0) FROM meta WHERE name = ?", name).Scan(&v)
		return v, err
	}
	epoch, err := value("epoch")
	if err != nil {
		return err
	}
	distrust, err := value("distrust")
	if err != nil {
		return err
	}
	if distrust > int64(s.opt.Now) {
		c.Distrust = wire.Time(distrust)
	}
	// More than one run can give out; 53 bits hold it, as JSON wants.
	c.Epoch = max(epoch+1<<32, s.opt.Now.Millis()<<12)
	_, err = s.conn.ExecContext(s.ctx, "INSERT OR REPLACE INTO meta VALUES ('epoch', ?)", c.Epoch)
	if full(err) {
		c.Epoch, err = max(epoch+1<<32, s.opt.Now.Millis()<<12), nil // the clock will do
	}
	return err
}

// full reports an error that only says that nothing can be written now.
func full(err error) bool {
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return false
	}
	switch e.Code() & 0xff {
	case sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY:
		return true
	}
	return false
}
