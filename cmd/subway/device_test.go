package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestDeviceProgram kills a device with -9 in the middle of a download: the next process
// finishes it, answers the command, and plays the program, as does the one after it.
func TestDeviceProgram(t *testing.T) {
	_, address := startGateway(t)
	content := strings.Repeat("0123456789", 100_000)
	half := make(chan struct{}, 1)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Range") == "" {
			w.Header().Set("Content-Length", fmt.Sprint(len(content)))
			_, _ = w.Write([]byte(content[:len(content)/2]))
			_ = http.NewResponseController(w).Flush()
			half <- struct{}{}
			<-r.Context().Done()
			return
		}
		http.ServeContent(w, r, "p", time.Time{}, strings.NewReader(content))
	}))
	t.Cleanup(s.Close)
	h := sha256.Sum256([]byte(content))
	sum, dir := hex.EncodeToString(h[:]), t.TempDir()
	d := startDevice(t, address, "--id", "td-01", "--program-dir", dir)
	body := fmt.Sprintf(`{"target_client_id":"td-01","request_ref":"r1","timeout":60000,"command":{"commandType":"PROGRAM","url":%q,"sha256":%q}}`, s.URL, sum)
	if status, answer := request(t, "POST", "http://"+address+"/api/commands", body); status != 200 {
		t.Fatalf("%d %s", status, answer)
	}
	select {
	case <-half:
	case <-time.After(patience):
		t.Fatal("the download did not begin")
	}
	until(t, "bytes are on disk", func() bool {
		about, err := os.Stat(filepath.Join(dir, "device-td-01", sum+".part"))
		return err == nil && about.Size() == int64(len(content)/2)
	})
	if _, _, code := finish(t, nil, "device", "--id", "td-01", "--program-dir", dir, "--connect", "ws://"+address+"/ws"); code != 2 {
		t.Errorf("a second process with the directory ended with %d", code)
	}
	d.signal(syscall.SIGKILL)
	d.ends()
	d = startDevice(t, address, "--id", "td-01", "--program-dir", dir)
	d.line("td-01 PLAYING " + sum)
	until(t, "the command is completed", func() bool {
		_, answer := request(t, "GET", "http://"+address+"/api/commands/r1", "")
		return strings.Contains(answer, `"status":"COMPLETED"`)
	})
	d.signal(syscall.SIGTERM)
	d.ends()
	d = startDevice(t, address, "--id", "td-01", "--program-dir", dir, "--json")
	d.line(`"playing":{"url"`, sum)
}
