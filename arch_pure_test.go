package subway

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"testing"
)

// checkPure reports imports, go statements and clock readings that core may not have.
func checkPure(t *testing.T, path string, forbidden map[string]bool) {
	t.Helper()
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, path, nil, 0)
	if err != nil {
		t.Error(err)
		return
	}
	for _, spec := range file.Imports {
		if name, _ := strconv.Unquote(spec.Path.Value); forbidden[name] {
			t.Errorf("%s imports %s", path, name)
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			t.Errorf("%s starts a goroutine", fset.Position(n.Pos()))
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok && x.Name == "time" && clockReading[n.Sel.Name] {
				t.Errorf("%s calls time.%s", fset.Position(n.Pos()), n.Sel.Name)
			}
		}
		return true
	})
}

var clockReading = map[string]bool{
	"Now": true, "Since": true, "Until": true, "Sleep": true, "After": true, "AfterFunc": true,
	"NewTimer": true, "NewTicker": true, "Tick": true,
}
