package device

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"subway/server/device/program"
)

// programServer serves programs by name; "slow" sends its first half and then nothing
// until the request ends.
func programServer(t *testing.T, programs map[string]string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := strings.TrimPrefix(r.URL.Path, "/")
		b := programs[name]
		if name == "slow" && r.Header.Get("Range") == "" {
			w.Header().Set("Content-Length", fmt.Sprint(len(b)))
			_, _ = w.Write([]byte(b[:len(b)/2]))
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
			return
		}
		http.ServeContent(w, r, name, time.Time{}, strings.NewReader(b))
	}))
	t.Cleanup(s.Close)
	return s.URL + "/"
}

func sum(program string) string {
	h := sha256.Sum256([]byte(program))
	return hex.EncodeToString(h[:])
}

// withPrograms opens the store of a device.
func withPrograms(t *testing.T, opt Options, dir string, plays chan string) Options {
	t.Helper()
	var err error
	if opt.Programs, err = program.Open(program.Options{Dir: dir, Every: 1}); err != nil {
		t.Fatal(err)
	}
	opt.Play = func(p program.Program) { plays <- p.SHA256 }
	return opt
}

func programCommand(ref, url, sum string) string {
	return fmt.Sprintf(`{"type":"COMMAND","requestRef":%q,"targetClientId":"td-01","command":{"commandType":"PROGRAM","url":%q,"sha256":%q}}`, ref, url, sum)
}

// TestProgram installs one, tells of each stage, refuses a bad one, and plays what is active
// also after a restart.
func TestProgram(t *testing.T) {
	dir, plays := t.TempDir(), make(chan string, 8)
	good := strings.Repeat("good", 50_000)
	url := programServer(t, map[string]string{"good": good, "bad": "bad"})
	p := listen(t)
	_, reports, stop := start(t, withPrograms(t, Options{}, dir, plays), p.url)
	await(t, "REGISTER", p.messages)
	p.say(programCommand("r1", url+"good", sum(good)))
	stages := map[string]bool{}
	for {
		var m struct {
			Type, RequestRef, Stage, Status string
			Progress                        struct{ Bytes, Total int }
			Result                          struct{ Program program.Program }
		}
		if err := json.Unmarshal([]byte(await(t, "a message", p.messages)), &m); err != nil || m.RequestRef != "r1" {
			t.Fatalf("%+v, %v", m, err)
		}
		if m.Type == "COMMAND_RESPONSE" {
			if m.Status != "COMPLETED" || m.Result.Program != (program.Program{URL: url + "good", SHA256: sum(good), Bytes: 200_000}) {
				t.Errorf("answered %+v", m)
			}
			break
		}
		if m.Progress.Total != 200_000 {
			t.Errorf("the progress is %+v", m)
		}
		stages[m.Stage] = true
	}
	if len(stages) != 3 || !stages["DOWNLOADING"] || !stages["VERIFYING"] || !stages["INSTALLING"] {
		t.Errorf("the stages were %v", stages)
	}
	if got := await(t, "what plays", plays); got != sum(good) {
		t.Errorf("plays %s", got)
	}
	await(t, "a report", reports)
	p.say(programCommand("r2", url+"bad", sum("worse")))
	if r := await(t, "a report", reports); r.Outcome != Failed || !strings.Contains(string(r.Result), `"code":"HASH_MISMATCH"`) {
		t.Errorf("a bad one: %+v", r)
	}
	p.say(programCommand("r3", "gopher://x/", sum("worse")))
	if r := await(t, "a report", reports); r.Outcome != Failed || !strings.Contains(string(r.Result), `"code":"INVALID_PROGRAM"`) {
		t.Errorf("a bad address: %+v", r)
	}
	p.say(`{"type":"COMMAND","requestRef":"r4","targetClientId":"td-01","command":{"commandType":"GET_STATUS"}}`)
	if r := await(t, "a report", reports); !bytes.Contains(r.Result, []byte(`"program":{"sha256":"`+sum(good))) {
		t.Errorf("the status is %s", r.Result)
	}
	stop()
	start(t, withPrograms(t, Options{}, dir, plays), p.url)
	if got := await(t, "what plays", plays); got != sum(good) {
		t.Errorf("after a restart plays %s", got)
	}
}

// slowProgram begins an installation that cannot come to its end, and returns once half of
// it is there.
func slowProgram(t *testing.T, p *port, url, sum string) {
	t.Helper()
	await(t, "REGISTER", p.messages)
	p.say(programCommand("r1", url, sum))
	for !strings.Contains(await(t, "half of it", p.messages), `"bytes":50000,`) {
	}
}

// TestProgramCancel stops a download; what is there serves the next.
func TestProgramCancel(t *testing.T) {
	slow := strings.Repeat("0123456789", 10_000)
	url, plays := programServer(t, map[string]string{"slow": slow})+"slow", make(chan string, 8)
	p := listen(t)
	opt := withPrograms(t, Options{}, t.TempDir(), plays)
	_, reports, _ := start(t, opt, p.url)
	slowProgram(t, p, url, sum(slow))
	p.say(`{"type":"CANCEL","requestRef":"r1"}`)
	if r := await(t, "a report", reports); r.Outcome != Cancelled {
		t.Errorf("reported %+v", r)
	}
	if j, found := opt.Programs.Pending(); found {
		t.Errorf("a cancelled job is pending: %+v", j)
	}
	p.say(programCommand("r2", url, sum(slow)))
	if r := await(t, "a report", reports); r.Outcome != Completed {
		t.Errorf("reported %+v", r)
	}
}

// TestProgramSurvives the end of the process: the next one finishes it and answers.
func TestProgramSurvives(t *testing.T) {
	slow := strings.Repeat("0123456789", 10_000)
	url, plays, dir := programServer(t, map[string]string{"slow": slow})+"slow", make(chan string, 8), t.TempDir()
	p := listen(t)
	_, reports, stop := start(t, withPrograms(t, Options{}, dir, plays), p.url)
	slowProgram(t, p, url, sum(slow))
	stop()
	if r := await(t, "a report", reports); r.Outcome != Abandoned {
		t.Errorf("reported %+v", r)
	}
	_, reports, _ = start(t, withPrograms(t, Options{}, dir, plays), p.url)
	if r := await(t, "a report", reports); r.Outcome != Completed || r.Ref != "r1" {
		t.Errorf("reported %+v", r)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		select {
		case m := <-p.messages:
			if strings.Contains(m, `"COMMAND_RESPONSE"`) && strings.Contains(m, `"r1"`) && strings.Contains(m, `"COMPLETED"`) {
				return
			}
		case <-ctx.Done():
			t.Fatal("the answer never came")
		}
	}
}
