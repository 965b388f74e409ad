// Package docs_test holds the pages to the sources: what a page names as proof
// must be there.
package docs_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// notTested is what a row says that no test shows.
const notTested = "not tested"

var (
	code = regexp.MustCompile("`[^`]+`")
	// A test function is written `internal/router.TestShared`, one of several
	// cases of a package, by its name in the source, `test/e2e "nobody listens"`.
	function = regexp.MustCompile(`^([\w/]+)\.(Test\w+)$`)
	scenario = regexp.MustCompile(`^([\w/]+) "([^"]+)"$`)
	mention  = regexp.MustCompile(`\bTest[A-Z]\w*`)
)

// Every row of the page of guarantees names a test, or says that there is none,
// and every test that it names exists.
func TestGuaranteesPage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("guarantees.md")
	if err != nil {
		t.Fatal(err)
	}
	named, problems := check(string(page), newSources(".."))
	for _, p := range problems {
		t.Errorf("guarantees.md:%s", p)
	}
	if named < 50 {
		t.Errorf("the page names %d tests: it is not read rightly", named)
	}
}

// The page of errors has every code of the SDK.
func TestErrorsPageHasTheSDKsCodes(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("errors.md")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("../client/*.go")
	if err != nil {
		t.Fatal(err)
	}
	codes := regexp.MustCompile(`Code = "(CLIENT_[A-Z_]+)"`)
	found := 0
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range codes.FindAllSubmatch(source, -1) {
			found++
			if row := "| `" + string(m[1]) + "` |"; !strings.Contains(string(page), row) {
				t.Errorf("errors.md has no row of %s", m[1])
			}
		}
	}
	if found < 9 {
		t.Errorf("%d codes are found in the sources", found)
	}
}

// A page that names what does not exist is found out.
func TestGuaranteesPageIsChecked(t *testing.T) {
	t.Parallel()
	s := newSources("..")
	for line, want := range map[string]int{
		"| a | `docs.TestGuaranteesPage` |":                 0,
		"| a | `test/e2e \"nobody listens\"` |":             0,
		"| a | " + notTested + " |":                         0,
		"no row":                                            0,
		"| a | b |":                                         1,
		"| a | `docs.TestNothing` |":                        1,
		"| a | `nowhere.TestGuaranteesPage` |":              1,
		"| a | `TestGuaranteesPage` |":                      2, // without a package; so it names none
		"| a | TestGuaranteesPage, " + notTested + " |":     1, // without backticks
		"| a | `test/e2e \"nobody ever listens\"` |":        1,
		"| a | `test/e2e \"of another\"` |":                 1, // a string, but no case
		"A sentence that names `internal/router.TestVoid`.": 1,
	} {
		if _, problems := check("| head | shown by |\n| --- | --- |\n"+line+"\n", s); len(problems) != want {
			t.Errorf("%s: %q, want %d problems", line, problems, want)
		}
	}
}

// check returns how many tests a page names, and what is wrong with it, each
// with its line.
func check(page string, s *sources) (named int, problems []string) {
	inTable := false
	for i, line := range strings.Split(page, "\n") {
		problem := func(format string, args ...any) {
			problems = append(problems, fmt.Sprintf("%d: ", i+1)+fmt.Sprintf(format, args...))
		}
		before := named
		for _, span := range code.FindAllString(line, -1) {
			span = strings.Trim(span, "`")
			var found bool
			var err error
			if m := function.FindStringSubmatch(span); m != nil {
				found, err = s.has(m[1], func(d *declared) bool { return d.functions[m[2]] })
			} else if m := scenario.FindStringSubmatch(span); m != nil {
				found, err = s.has(m[1], func(d *declared) bool { return d.cases[m[2]] })
			} else {
				if mention.MatchString(span) {
					problem("%s has no package", span)
				}
				continue
			}
			named++
			if err != nil {
				problem("%s: %v", span, err)
			} else if !found {
				problem("%s does not exist", span)
			}
		}
		if bare := mention.FindString(code.ReplaceAllString(line, "")); bare != "" {
			problem("%s is not in backticks, with its package", bare)
		}
		row := strings.HasPrefix(line, "|")
		rule := strings.HasPrefix(line, "| ---")
		switch {
		case !row:
			inTable = false
		case rule:
			inTable = true
		case inTable && named == before && !strings.Contains(line, notTested):
			problem("the row names no test and does not say %q", notTested)
		}
	}
	return named, problems
}

// declared is what a directory's Go files declare.
type declared struct{ functions, cases map[string]bool }

// sources reads directories below root, each once. For one goroutine.
type sources struct {
	root string
	read map[string]*declared
}

func newSources(root string) *sources { return &sources{root, map[string]*declared{}} }

func (s *sources) has(dir string, want func(*declared) bool) (bool, error) {
	d := s.read[dir]
	if d == nil {
		var err error
		if d, err = declarations(filepath.Join(s.root, filepath.FromSlash(dir))); err != nil {
			return false, err
		}
		s.read[dir] = d
	}
	return want(d), nil
}

// declarations reads a directory: its test functions, and the names of cases,
// which stand first in a composite literal or are the first argument of Run.
func declarations(dir string) (*declared, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("no Go files in %s", dir)
	}
	d := &declared{map[string]bool{}, map[string]bool{}}
	set := token.NewFileSet()
	for _, name := range files {
		file, err := parser.ParseFile(set, name, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		inTest := strings.HasSuffix(name, "_test.go")
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if inTest && n.Recv == nil {
					d.functions[n.Name.Name] = true
				}
			case *ast.CompositeLit:
				if _, list := n.Type.(*ast.ArrayType); !list && len(n.Elts) > 0 {
					d.addCase(n.Elts[0])
				}
			case *ast.CallExpr:
				if f, ok := n.Fun.(*ast.SelectorExpr); ok && f.Sel.Name == "Run" && len(n.Args) == 2 {
					d.addCase(n.Args[0])
				}
			}
			return true
		})
	}
	return d, nil
}

func (d *declared) addCase(e ast.Expr) {
	if lit, ok := e.(*ast.BasicLit); ok && lit.Kind == token.STRING {
		if name, err := strconv.Unquote(lit.Value); err == nil {
			d.cases[name] = true
		}
	}
}
