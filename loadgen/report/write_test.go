package report

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var runs = []struct {
	name string
	make func() *Report
}{
	{"steady", steadyWithBooks}, {"broken", broken}, {"empty", empty}, {"one-second", oneSecond}, {"day", day},
}

// TestGolden holds the three forms of each run. The day's JSON is 30 MB and is only parsed.
func TestGolden(t *testing.T) {
	for _, run := range runs {
		t.Run(run.name, func(t *testing.T) {
			rep := run.make()
			var text, page, whole bytes.Buffer
			if err := rep.WriteText(&text); err != nil {
				t.Fatal(err)
			}
			if err := rep.WriteHTML(&page); err != nil {
				t.Fatal(err)
			}
			if err := rep.WriteJSON(&whole); err != nil {
				t.Fatal(err)
			}
			golden(t, run.name+".txt", text.Bytes())
			golden(t, run.name+".html", page.Bytes())
			if run.name != "day" {
				golden(t, run.name+".json", whole.Bytes())
			}
			if !json.Valid(whole.Bytes()) {
				t.Error("the JSON is none")
			}
			if dir := os.Getenv("REPORT_OUT"); dir != "" {
				if err := os.WriteFile(filepath.Join(dir, run.name+".html"), page.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if strings.ContainsAny(text.String(), "\x1b\x00") {
				t.Error("the text has control characters")
			}
		})
	}
}
