package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"go.yaml.in/yaml/v4"
)

// parsed parses a command line and runs nothing.
func parsed(t *testing.T, args []string) (*kong.Context, error) {
	t.Helper()
	var c cli
	parser, err := kong.New(&c, kong.Name("steady"), kong.Exit(func(int) {}))
	if err != nil {
		t.Fatal(err)
	}
	return parser.Parse(args)
}

func deployFile(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// commandLines finds what containers run: the lists of words whose first is a command of steady, and with "steady" before it.
func commandLines(v any) [][]string {
	var out [][]string
	switch v := v.(type) {
	case map[string]any:
		for _, child := range v {
			out = append(out, commandLines(child)...)
		}
	case []any:
		var words []string
		for _, w := range v {
			if s, ok := w.(string); ok {
				words = append(words, s)
			}
			out = append(out, commandLines(w)...)
		}
		if len(words) > 0 && words[0] == "steady" {
			words = words[1:]
		}
		if len(words) > 0 && len(words) == len(v) && slices.Contains([]string{"worker", "doctor", "dev"}, words[0]) {
			out = append(out, words)
		}
	}
	return out
}

// Every command line in the files of docker/ and in docs/deployment.md is one of this program.
func TestDeployment_commandLinesFollowTheGrammar(t *testing.T) {
	t.Parallel()
	var lines [][]string
	for _, name := range []string{"docker/compose.yaml", "docker/kubernetes/steady.yaml"} {
		found := 0
		for _, doc := range regexp.MustCompile(`(?m)^---$`).Split(string(deployFile(t, name)), -1) {
			var v any
			if err := yaml.Unmarshal([]byte(doc), &v); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			more := commandLines(v)
			found += len(more)
			lines = append(lines, more...)
		}
		if found < 4 {
			t.Errorf("%s has %d command lines, the test sees too few", name, found)
		}
	}
	for _, name := range []string{"docker/Dockerfile", "docker/cuda.Dockerfile"} {
		text := string(deployFile(t, name))
		entry := regexp.MustCompile(`(?m)^ENTRYPOINT \["steady"\]$`).FindString(text)
		cmds := regexp.MustCompile(`(?m)^CMD (\[.*\])$`).FindAllStringSubmatch(text, -1)
		if entry == "" || len(cmds) == 0 {
			t.Errorf("%s does not start steady", name)
		}
		for _, c := range cmds {
			var words []string
			if err := yaml.Unmarshal([]byte(c[1]), &words); err != nil {
				t.Errorf("%s: %s: %v", name, c[0], err)
			}
			lines = append(lines, words)
		}
	}
	inDocs := 0
	for _, m := range regexp.MustCompile(`(?m)^(?:\w+=\S+ )*steady ((?:[^\\\n]|\\\n)+)$`).FindAllStringSubmatch(string(deployFile(t, "docs/deployment.md")), -1) {
		text, _, _ := strings.Cut(strings.ReplaceAll(m[1], "\\\n", " "), "  #")
		words := strings.Fields(text)
		for i, w := range words {
			words[i] = strings.Trim(w, `'"`)
		}
		lines = append(lines, words)
		inDocs++
	}
	if inDocs < 3 {
		t.Errorf("docs/deployment.md has %d command lines, the test sees too few", inDocs)
	}
	for _, args := range lines {
		if _, err := parsed(t, args); err != nil {
			t.Errorf("steady %s: %v", strings.Join(args, " "), err)
		}
	}
}

// The environment of the containers is read by somebody: by a flag of the program, or by the Temporal and AWS libraries.
func TestDeployment_environmentIsRead(t *testing.T) {
	t.Parallel()
	known := []string{
		"TEMPORAL_ADDRESS", "TEMPORAL_NAMESPACE", "TEMPORAL_API_KEY", "TEMPORAL_TLS", "TEMPORAL_TLS_SERVER_CA_CERT_PATH", "TEMPORAL_TLS_CLIENT_CERT_PATH",
		"TEMPORAL_TLS_CLIENT_KEY_PATH", "TEMPORAL_TLS_SERVER_NAME", "AWS_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "POD",
	}
	var c cli
	parser, err := kong.New(&c, kong.Name("steady"))
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range parser.Model.Leaves(false) {
		for _, f := range n.AllFlags(false) {
			for _, flag := range f {
				known = append(known, flag.Envs...)
			}
		}
	}
	if !slices.Contains(known, "STEADY_STORE") {
		t.Error("no flag reads STEADY_STORE")
	}
	var compose struct {
		Environment map[string]string `yaml:"x-environment"`
	}
	if err := yaml.Unmarshal(deployFile(t, "docker/compose.yaml"), &compose); err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile(`(?m)^  ((?:TEMPORAL|STEADY|AWS)_\w+):`).FindAllStringSubmatch(string(deployFile(t, "docker/kubernetes/steady.yaml")), -1)
	for _, m := range names {
		compose.Environment[m[1]] = ""
	}
	if len(compose.Environment) < 10 {
		t.Errorf("the test sees %d variables, too few", len(compose.Environment))
	}
	for name := range compose.Environment {
		if !slices.Contains(known, name) {
			t.Errorf("nobody reads %s", name)
		}
	}
}

// A worker that gets an empty STEADY_STORE, as from the compose file without one, keeps its store in the data directory.
func TestStoreFlags_emptyIsTheDirectory(t *testing.T) {
	t.Setenv("STEADY_STORE", "")
	dir := t.TempDir()
	ctx, err := parsed(t, []string{"worker", "--data", dir})
	if err != nil {
		t.Fatal(err)
	}
	w, ok := ctx.Selected().Target.Addr().Interface().(*workerCmd)
	if !ok {
		t.Fatalf("the command is a %T", ctx.Selected().Target.Interface())
	}
	store, err := w.make(t.Context(), dir)
	if err != nil || w.storeFlags.check() != nil {
		t.Fatal(err)
	}
	if want := filepath.Join(dir, "store"); store.Where("") != want {
		t.Errorf("the store is %s, want %s", store.Where(""), want)
	}
	if _, err := os.Stat(filepath.Join(dir, "store")); errors.Is(err, fs.ErrNotExist) {
		t.Error("the directory was not made")
	}
}
