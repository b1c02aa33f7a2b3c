package journal

import (
	"io"
	"sync"
	"sync/atomic"
	"time"

	walfs "github.com/hashicorp/raft-wal/fs"
	"github.com/hashicorp/raft-wal/types"
)

// syncTimes count what fsync of groups took, over all the times a log is opened.
type syncTimes struct{ count, nanos atomic.Int64 }

// disk is the file system as raft-wal sees it, for one opening of the log. It remembers
// what raft-wal forgets: why something failed, and what is open.
type disk struct {
	dir   string
	fs    *walfs.FS
	times *syncTimes
	fails func(op, name string) error // in tests: what to fail with, nil for none

	mu   sync.Mutex
	open map[io.Closer]struct{}
	err  error // the last one

	syncing sync.Mutex // guards both
	async   *asyncSync // nil: not made yet, or the system has none
	asked   bool       // whether it has
}

func newDisk(dir string, times *syncTimes, fails func(op, name string) error) *disk {
	return &disk{dir: dir, fs: walfs.New(), times: times, fails: fails, open: map[io.Closer]struct{}{}}
}

// sync makes a file stable that has been synced before.
func (d *disk) sync(f types.WritableFile) error {
	if o, ok := f.(interface{ Fd() uintptr }); ok && d.syncing.TryLock() {
		defer d.syncing.Unlock()
		if !d.asked {
			d.asked, d.async = true, newAsyncSync()
		}
		if d.async != nil {
			if done, err := d.async.sync(int(o.Fd())); done {
				return err
			}
		}
	}
	return f.Sync()
}

func (d *disk) fault(op, name string) error {
	if d.fails == nil {
		return nil
	}
	return d.fails(op, name)
}

// note keeps err and returns it.
func (d *disk) note(err error) error {
	if err != nil {
		d.mu.Lock()
		d.err = err
		d.mu.Unlock()
	}
	return err
}

// why is the last error.
func (d *disk) why() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err
}

// closeAll closes what raft-wal left open, as it does when its Open fails.
func (d *disk) closeAll() {
	d.mu.Lock()
	left := d.open
	d.open = map[io.Closer]struct{}{}
	d.mu.Unlock()
	for f := range left {
		_ = f.Close()
	}
	d.syncing.Lock()
	d.async.close()
	d.async = nil
	d.syncing.Unlock()
}

// keep wraps a file that was opened.
func (d *disk) keep(f types.WritableFile, name string) *file {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.open[f] = struct{}{}
	return &file{WritableFile: f, name: name, d: d}
}

// ListDir implements types.VFS.
func (d *disk) ListDir(dir string) ([]string, error) { return d.fs.ListDir(dir) }

// Create implements types.VFS.
func (d *disk) Create(dir, name string, size uint64) (types.WritableFile, error) {
	if err := d.fault("create", name); err != nil {
		return nil, d.note(err)
	}
	f, err := d.fs.Create(dir, name, size)
	if err != nil {
		return nil, d.note(err)
	}
	return d.keep(f, name), nil
}

// Delete implements types.VFS.
func (d *disk) Delete(dir, name string) error { return d.fs.Delete(dir, name) }

// OpenReader implements types.VFS.
func (d *disk) OpenReader(dir, name string) (types.ReadableFile, error) {
	f, err := d.fs.OpenReader(dir, name)
	if err != nil {
		return nil, err
	}
	return d.keep(f.(types.WritableFile), name), nil // an os.File
}

// OpenWriter implements types.VFS.
func (d *disk) OpenWriter(dir, name string) (types.WritableFile, error) {
	f, err := d.fs.OpenWriter(dir, name)
	if err != nil {
		return nil, err
	}
	return d.keep(f, name), nil
}

// file is one that is open.
type file struct {
	types.WritableFile
	name   string
	d      *disk
	synced bool // once: then raft-wal has synced the directory, too
}

func (f *file) WriteAt(b []byte, at int64) (int, error) {
	if err := f.d.fault("write", f.name); err != nil {
		n, _ := f.WritableFile.WriteAt(b[:len(b)/2], at) // as a full disk does
		return n, f.d.note(err)
	}
	n, err := f.WritableFile.WriteAt(b, at)
	return n, f.d.note(err)
}

func (f *file) Sync() error {
	begun := time.Now()
	err := f.d.fault("sync", f.name)
	switch {
	case err != nil:
	case f.synced:
		err = f.d.sync(f.WritableFile)
	default:
		err = f.WritableFile.Sync()
		f.synced = err == nil
	}
	f.d.times.count.Add(1)
	f.d.times.nanos.Add(int64(time.Since(begun)))
	return f.d.note(err)
}

func (f *file) Close() error {
	f.d.mu.Lock()
	delete(f.d.open, io.Closer(f.WritableFile))
	f.d.mu.Unlock()
	return f.WritableFile.Close()
}
