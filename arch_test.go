// Package subway holds the rules of the tree that a compiler does not.
package subway

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// mayImport says which of our packages a package may import, by the longest prefix that
// fits its path: core <- server <- cmd, and nothing imports bench, fuzz or cmd.
var mayImport = map[string][]string{
	"core/wire":        {},
	"core/router":      {"core/wire"},
	"server/front":     {"core/wire"},
	"server/callback":  {"core/wire"},
	"server/uplink":    {"core/wire"},
	"server/journal":   {},
	"server/device":    {"core/wire", "server/uplink", "server/device/program"},
	"server/edge":      {"core/wire", "server/front", "server/uplink", "server/edge"},
	"server/edge/line": {"core/wire", "server/edge/local"},
	"server/edge/mqtt": {"core/wire", "server/edge/local"},
	"server/gateway":   {"core", "server/front", "server/callback", "server/journal", "api"},
	"loadgen":          {"core/wire", "loadgen"},
	"api":              {"api"},
	"cmd":              {"core", "server", "loadgen", "api"},
	"fuzz":             {"core", "server"},
	"interop":          {},
}

func TestImportsRunOneWay(t *testing.T) {
	seen := 0
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (path == "bench" || d.Name() == "node_modules" || strings.HasPrefix(d.Name(), ".") && path != ".") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || filepath.Dir(path) == "." {
			return nil
		}
		seen++
		checkImports(t, path)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if seen < 20 {
		t.Fatalf("only %d files were looked at", seen)
	}
}

func checkImports(t *testing.T, path string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
	if err != nil {
		t.Error(err)
		return
	}
	dir := filepath.ToSlash(filepath.Dir(path))
	allowed, known := allowedFor(dir)
	if !known {
		t.Errorf("%s: no rule says what %s may import", path, dir)
		return
	}
	for _, spec := range file.Imports {
		name, _ := strconv.Unquote(spec.Path.Value)
		ours, isOurs := strings.CutPrefix(name, "subway/")
		if isOurs && !within(ours, allowed) {
			t.Errorf("%s imports %s: %s may import %v", path, name, dir, allowed)
		}
	}
}

func allowedFor(dir string) (allowed []string, known bool) {
	longest := -1
	for prefix, a := range mayImport {
		if within(dir, []string{prefix}) && len(prefix) > longest {
			allowed, known, longest = a, true, len(prefix)
		}
	}
	return allowed, known
}

func within(path string, prefixes []string) bool {
	for _, p := range prefixes {
		if path == p || strings.HasPrefix(path, p+"/") {
			return true
		}
	}
	return false
}

// core starts no goroutine, opens no socket and reads no clock (docs/adr/0001).
func TestCoreIsPure(t *testing.T) {
	forbidden := map[string]bool{"net": true, "os": true, "net/http": true, "syscall": true, "golang.org/x/sys/unix": true}
	files, err := filepath.Glob("core/*/*.go")
	if err != nil || len(files) < 10 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") || strings.HasSuffix(path, "_easyjson.go") {
			continue
		}
		checkPure(t, path, forbidden)
	}
}
