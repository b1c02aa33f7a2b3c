package gateway

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"subway/core/wire"
)

// dataDir is the directory that outlives the process: one process at a time holds its
// lock. Beside the journal it keeps a floor under the epochs, so that they rise over a restart even if
// the wall clock steps back between (PROTOCOL.md section 3).
type dataDir struct {
	lock, dir *os.File // both are locked: somebody may remove the file
	used      bool     // by an earlier process
}

// epochsPerRun lies between the floors of two runs. It matters only where the wall clock
// went back between them; else the floor follows the clock, 1,024 epochs a millisecond.
const epochsPerRun = 1 << 28

// openDataDir locks the directory, made if need be, and returns the floor of epochs.
func openDataDir(path string, now wire.Time, log *slog.Logger) (*dataDir, int64, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, 0, fmt.Errorf("data directory: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(path, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, 0, fmt.Errorf("data directory: %w", err)
	}
	d := &dataDir{lock: lock}
	if d.dir, err = os.Open(path); err != nil {
		_ = d.close()
		return nil, 0, fmt.Errorf("data directory: %w", err)
	}
	if err := errors.Join(unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB), unix.Flock(int(d.dir.Fd()), unix.LOCK_EX|unix.LOCK_NB)); err != nil {
		holder, _ := io.ReadAll(io.LimitReader(lock, 20))
		_ = d.close()
		return nil, 0, fmt.Errorf("data directory %s is in use by another process (%s)", path, cmp.Or(strings.TrimSpace(string(holder)), "unknown"))
	}
	if err := d.sign(); err != nil {
		_ = d.close()
		return nil, 0, fmt.Errorf("data directory: %w", err)
	}
	epoch := filepath.Join(path, "epoch")
	_, err = os.Stat(epoch)
	d.used = err == nil
	floor, err := raiseFloor(epoch, now)
	if errors.Is(err, unix.ENOSPC) && floor > 0 {
		log.Warn("the floor of epochs could not be stored; they rise as long as the wall clock does not step back", "error", err)
	} else if err != nil {
		_ = d.close()
		return nil, 0, err
	}
	return d, floor, nil
}

// sign writes into the lock file who has the lock, for people. A full disk is no reason not
// to start: what can be read of the journal can be served.
func (d *dataDir) sign() error {
	_, err := d.lock.WriteAt(fmt.Appendf(nil, "%-19d\n", os.Getpid()), 0)
	if errors.Is(err, unix.ENOSPC) {
		return nil
	}
	return err
}

// raiseFloor reads the last floor, stores a higher one, and returns it, also with an error of
// the storing.
func raiseFloor(path string, now wire.Time) (int64, error) {
	floor := now.Millis() << 10
	switch b, err := os.ReadFile(path); {
	case err == nil:
		last, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
		if err != nil || last < 0 {
			return 0, fmt.Errorf("%s does not hold a number: restore it, or remove it if no client has seen a later epoch", path)
		}
		floor = max(floor, last+epochsPerRun)
		if floor >= 1<<53 {
			return 0, fmt.Errorf("%s holds %d: no epochs are left that every client can read", path, last)
		}
	case !os.IsNotExist(err):
		return 0, fmt.Errorf("data directory: %w", err)
	}
	return floor, storeFloor(path, floor)
}

// storeFloor replaces the file, all or nothing.
func storeFloor(path string, floor int64) error {
	tmp := path + ".new"
	if err := writeSynced(tmp, strconv.FormatInt(floor, 10)+"\n"); err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	if err := os.Rename(tmp, path); err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	if err := syncDir(filepath.Dir(path)); err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	return nil
}

// syncDir makes a rename in a directory stable.
func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

func writeSynced(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

func (d *dataDir) close() error {
	if d == nil {
		return nil
	}
	err := d.lock.Close() // the lock goes with the descriptor
	if d.dir != nil {
		err = errors.Join(err, d.dir.Close())
	}
	return err
}
