package loadgen_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"testing"
	"time"

	"subway/loadgen"
	"subway/loadgen/report"
)

// small is a short run that uses everything the scripted gateway knows.
func small() loadgen.Scenario {
	return loadgen.Scenario{
		Name:    "test",
		Fleet:   loadgen.Fleet{Edges: 4, Devices: 5, Backends: 2},
		Load:    loadgen.Load{Rate: 300, Payload: 50, Timeout: 300 * time.Millisecond, Callbacks: 0.5},
		HTTP:    loadgen.HTTP{Rate: 50, Workers: 8},
		Devices: loadgen.Devices{Progress: 2},
		Phases:  []loadgen.Phase{{For: time.Second}},
		Drain:   30 * time.Second,
	}
}

func play(t *testing.T, url string, s loadgen.Scenario) *report.Report {
	t.Helper()
	rep, err := loadgen.Run(context.Background(), loadgen.Options{URL: url, Scenario: s, Seed: 1, Loops: 1, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return rep
}

// bad lists the faults in the books.
func bad(rep *report.Report) (names []string) {
	for _, e := range rep.Books.Entries {
		if !e.OK {
			names = append(names, e.Name)
		}
	}
	return names
}

func count(rep *report.Report, name string) int64 {
	for _, e := range rep.Books.Entries {
		if e.Name == name {
			return e.Count
		}
	}
	return -1
}

func TestHonestGateway(t *testing.T) {
	rep := play(t, newScripted(t, "").URL, small())
	if !rep.Books.Balanced {
		t.Fatalf("faults %q: %q", bad(rep), rep.Books.Mismatches)
	}
	if sent := count(rep, "sent"); sent < 40 || count(rep, "COMPLETED") != sent || count(rep, "delivered") != sent ||
		count(rep, "callbacks") != count(rep, "callbacks due") || count(rep, "callbacks") == 0 || count(rep, "progress told") == 0 {
		t.Errorf("%+v", rep.Books.Entries)
	}
	names := map[string]int64{}
	for _, c := range rep.Channels {
		names[c.Channel.String()] = c.Count
	}
	if names["WebSocket"] < 20 || names["HTTP"] < 5 || names["Callback"] < 10 {
		t.Errorf("channels %v", names)
	}
}

func TestUnreachable(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	url := "http://" + l.Addr().String()
	l.Close()
	_, err = loadgen.Run(context.Background(), loadgen.Options{URL: url, Scenario: small(), Log: slog.New(slog.DiscardHandler)})
	if !errors.Is(err, loadgen.ErrUnreachable) {
		t.Fatal(err)
	}
}
